#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Credentials for S3: each source with its files and servers, what is tried and in which order, renewal in the middle
of reading, and that no secret is printed or saved anywhere."""
import itertools
import json
import os
import shlex
import subprocess
import sys
import threading
import urllib.parse

import kit
from cloud import Cloud, expiration
from kit import Run, directory, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
cloud = Cloud()
LINES = [f'"{i}"' for i in range(4)]
for i in range(4):
    cloud.put("data", f"f-{i}", b"%d\n" % i)
URL = 's3://data/f-*'
os.environ["AWS_ENDPOINT_URL_S3"] = cloud.address
os.environ["AWS_REGION"] = "eu-test-1"
home = os.path.join(directory.name, ".aws")
os.mkdir(home)
outputs, secrets = [], []
numbers = itertools.count()


def fresh(token=True):
    """Credentials that the store accepts from now on, and no others: (id, secret, token)."""
    n = next(numbers)
    made = f"ASIAMADE{n:04d}", f"made/secret+{n:04d}", f"made+token/{n:04d}==" if token else None
    secrets.extend(text for text in made if text)
    cloud.keys.clear()
    cloud.keys[made[0]] = made[1:]
    return made


def document(made, name="Token", **more):
    return json.dumps({"AccessKeyId": made[0], "SecretAccessKey": made[1], name: made[2], **more}).encode()


def read(*arguments, url=URL, **environment):
    cloud.take()
    run = show(f'text_line("{url}")', "-v", *arguments, MILLRACE_LOG="debug", **environment)
    outputs.append((run.stdout.decode(), run.stderr))
    return run, cloud.take()


def reads(name, **environment):
    run, seen = read(**environment)
    result(name, run.status == 0 and run.lines == LINES, f"{run}\n{[r[:2] for r in seen]}")
    return seen


def fails(name, *words, **environment):
    run, seen = read(**environment)
    good = run.status == 1 and not run.lines and all(w in run.stderr for w in words)
    result(name, good, f"{run}\n{[r[:2] for r in seen]}")
    return seen


def put_file(name, text):
    path = os.path.join(home, name)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    return path


# ---- variables
one = fresh()
reads("variables", AWS_ACCESS_KEY_ID=one[0], AWS_SECRET_ACCESS_KEY=one[1], AWS_SESSION_TOKEN=one[2])
fails("a_wrong_secret", "permission denied", "403", "AWS_ACCESS_KEY_ID", AWS_ACCESS_KEY_ID=one[0],
      AWS_SECRET_ACCESS_KEY="wrong/secret+5678", AWS_SESSION_TOKEN=one[2])
secrets.append("wrong/secret+5678")
seen = fails("none_at_all", "permission denied", "AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "~/.aws/credentials",
             "~/.aws/config", "profile default", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "instance metadata",
             "MILLRACE_S3_ANONYMOUS=1")
result("and_nothing_is_asked", not seen, str(seen))

# ---- files
one = fresh(token=False)
put_file("credentials", f"[work]\naws_access_key_id = {one[0]}\naws_secret_access_key = {one[1]}\n")
reads("a_profile", AWS_PROFILE="work")
fails("a_profile_that_is_nowhere", "permission denied", "other", "AWS_PROFILE", AWS_PROFILE="other")
printed = put_file("printed", "")
put_file("config", f"""[profile printer]
credential_process = cat {shlex.quote(printed)}
[profile failing]
credential_process = echo said; exit 3
[profile talking]
credential_process = echo made+chat/0001
[profile signed in]
sso_session = x
""")
secrets.append("made+chat/0001")
one = fresh()
with open(printed, "wb") as f:
    f.write(document(one, "SessionToken", Version=1, Expiration=expiration(3600)))
reads("a_program", AWS_PROFILE="printer")
put_file("quoted", f"[profile 'two words']\ncredential_process = cat {shlex.quote(printed)}\n")
reads("a_profile_in_quotes", AWS_PROFILE="two words", AWS_CONFIG_FILE="~/.aws/quoted")
fails("a_program_that_fails", "permission denied", "credential_process", "status 3", AWS_PROFILE="failing")
fails("a_program_that_prints_something_else", "data loss", "credential_process", "AccessKeyId", AWS_PROFILE="talking")
fails("single_sign_on", "unimplemented", "IAM Identity Center", AWS_PROFILE="signed in")
with open(printed, "wb") as f:
    f.write(document(one, "SessionToken", Version=1, Expiration=expiration(-10)))
fails("credentials_that_have_ended", "permission denied", "ended already", "clock", AWS_PROFILE="printer")

# ---- STS
asked = []


def sts(h):
    """Gives new credentials to everyone who has the right token or the right signature."""
    words = dict(urllib.parse.parse_qsl(h.body.decode()))
    asked.append(words)
    if words["Action"] == "AssumeRole":
        if not cloud.signed_by(h, "sts"):
            return cloud.fail(h, 403, "SignatureDoesNotMatch", words["RoleArn"])
    elif words.get("WebIdentityToken") != "made.web+token/77":
        return cloud.fail(h, 403, "InvalidIdentityToken", words.get("WebIdentityToken"))
    made = fresh()
    return h.answer(200, f"""<R><Credentials><AccessKeyId>{made[0]}</AccessKeyId><SecretAccessKey>{made[1]}</SecretAccessKey>
        <SessionToken>{made[2]}</SessionToken><Expiration>{expiration(3600)}</Expiration></Credentials></R>""".encode())


cloud.routes["POST /"] = cloud.routes["POST /sts/"] = sts
token = put_file("token", "made.web+token/77\n")
secrets.extend(["made.web+token/77", "made.bad+token/88"])
web = {"AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader"}
seen = reads("a_web_identity", AWS_ENDPOINT_URL_STS=cloud.address, **web)
result("asked_for_once", [r[0] for r in seen].count("POST") == 1 and asked[-1]["RoleArn"].endswith("/reader") and
       asked[-1]["RoleSessionName"] == "millrace", str(asked))
reads("the_endpoint_of_all_services", AWS_ENDPOINT_URL=cloud.address, AWS_ROLE_SESSION_NAME="night", **web)
result("the_name_of_the_session", asked[-1]["RoleSessionName"] == "night", str(asked[-1]))
put_file("token", "made.bad+token/88")
fails("a_web_identity_that_is_refused", "permission denied", "STS answered 403", "InvalidIdentityToken",
      AWS_ENDPOINT_URL_STS=cloud.address, **web)
os.remove(token)
fails("a_token_that_is_not_there", "permission denied", token, AWS_ENDPOINT_URL_STS=cloud.address, **web)
fails("a_token_without_a_role", "AWS_ROLE_ARN is not", AWS_WEB_IDENTITY_TOKEN_FILE=token)
cloud.routes["POST /"] = lambda h: h.answer(500)
put_file("token", "made.web+token/77\n")
seen = fails("an_sts_that_fails", "unavailable", "STS answered 500", AWS_ENDPOINT_URL_STS=cloud.address, **web)
result("is_asked_four_times", len(seen) in (4, 8), str(seen))
cloud.routes["POST /"] = sts

base = fresh()
put_file("credentials", f"""[base]
aws_access_key_id = {base[0]}
aws_secret_access_key = {base[1]}
aws_session_token = {base[2]}
[own]
aws_access_key_id = {base[0]}
aws_secret_access_key = {base[1]}
aws_session_token = {base[2]}
role_arn = arn:aws:iam::1:role/own
source_profile = own
""")
put_file("config", f"""[profile reader]
role_arn = arn:aws:iam::1:role/first
source_profile = base
external_id = given/outside
duration_seconds = 1800
role_session_name = by-profile
[profile second]
role_arn = arn:aws:iam::1:role/second
source_profile = reader
[profile web]
role_arn = arn:aws:iam::1:role/web
web_identity_token_file = {token}
[profile named]
role_arn = arn:aws:iam::1:role/named
credential_source = Environment
[profile machine]
role_arn = arn:aws:iam::1:role/machine
credential_source = Ec2InstanceMetadata
[profile circle]
role_arn = arn:aws:iam::1:role/circle
source_profile = round
[profile round]
role_arn = arn:aws:iam::1:role/round
source_profile = circle
[profile alone]
role_arn = arn:aws:iam::1:role/alone
[profile code]
role_arn = arn:aws:iam::1:role/code
source_profile = base
mfa_serial = 1
[profile empty]
role_arn = arn:aws:iam::1:role/empty
source_profile = no-one
""")
os.environ["AWS_ENDPOINT_URL_STS"] = cloud.address + "/sts/"


def accept_base():
    cloud.keys.clear()
    cloud.keys[base[0]] = base[1:]


accept_base()
reads("a_role_of_a_profile", AWS_PROFILE="reader")
result("with_its_options", asked[-1].get("ExternalId") == "given/outside" and asked[-1].get("DurationSeconds") == "1800" and
       asked[-1]["RoleSessionName"] == "by-profile", str(asked[-1]))
accept_base()
reads("a_role_by_a_role", AWS_PROFILE="second")
result("both_are_asked_for", [a["RoleArn"][-6:] for a in asked[-2:]] == ["/first", "second"], str(asked[-2:]))
accept_base()
reads("a_profile_that_is_its_own_source", AWS_PROFILE="own")
reads("a_profile_of_a_web_identity", AWS_PROFILE="web")
for name, profile, words in (("a_circle_of_profiles", "circle", ["more than 8"]), ("a_role_of_nothing", "alone", ["source_profile"]),
                             ("a_role_with_a_code", "code", ["unimplemented", "mfa_serial"]),
                             ("a_source_without_keys", "empty", ["permission denied", "no-one"]),
                             ("a_named_source_without_keys", "machine", ["permission denied", "Ec2InstanceMetadata"])):
    accept_base()
    fails(name, *words, AWS_PROFILE=profile)
cloud.keys[base[0]] = ("other/secret+0009", base[2])
fails("a_role_that_is_refused", "permission denied", "profile reader", "STS answered 403 (SignatureDoesNotMatch)",
      AWS_PROFILE="reader")

# ---- the container
os.rename(os.path.join(home, "config"), os.path.join(home, "unused"))
os.remove(os.path.join(home, "credentials"))
AUTHORIZATION = "made/authorization+3"
secrets.append(AUTHORIZATION)
given = []


def container(h):
    given.append(h.headers.get("Authorization"))
    h.answer(200, document(fresh(), Expiration=expiration(3600)))


cloud.routes["/container"] = container
full = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": cloud.address + "/container"}
reads("a_container", **full)
result("without_a_token", given == [None], str(given))
reads("a_container_with_a_token", AWS_CONTAINER_AUTHORIZATION_TOKEN=AUTHORIZATION, **full)
in_file = put_file("authorization", AUTHORIZATION + "\n")
reads("a_container_with_a_file", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=in_file, AWS_CONTAINER_AUTHORIZATION_TOKEN="unused", **full)
result("the_token_is_sent", given[1:] == [AUTHORIZATION] * 2, str(given))
for address in ("http://192.0.2.1/x", "http://127.0.0.1.example.org/x", "http://localhost@192.0.2.1/x", "ftp://127.0.0.1/x",
                "http://1270.0.0.1/x"):
    seen = fails(f"the_token_does_not_go_to_{address.split('/')[2]}_{address[:3]}", "invalid argument", "FULL_URI",
                 AWS_CONTAINER_CREDENTIALS_FULL_URI=address, AWS_CONTAINER_AUTHORIZATION_TOKEN=AUTHORIZATION)
cloud.routes["/container"] = lambda h: h.answer(403, AUTHORIZATION.encode())
fails("a_container_that_refuses", "permission denied", "credentials of the container", "403", **full)
cloud.routes["/container"] = container

# ---- the instance
state = {"session": 0}


def start_session(h):
    if h.command != "PUT" or h.headers.get("X-aws-ec2-metadata-token-ttl-seconds") != "21600":
        return h.answer(403)
    state["session"] += 1
    secrets.append(f"made-session-{state['session']:04d}")
    return h.answer(200, f"made-session-{state['session']:04d}".encode())


def with_session(then):
    def route(h):
        if h.headers.get("X-aws-ec2-metadata-token") != f"made-session-{state['session']:04d}":
            return h.answer(401)
        return then(h)
    return route


ROLE = "/latest/meta-data/iam/security-credentials/"
cloud.routes["/latest/api/token"] = start_session
cloud.routes[ROLE] = with_session(lambda h: h.answer(200, b"role+of it\n"))
cloud.routes[ROLE + "role%2Bof%20it"] = with_session(lambda h: h.answer(200, document(fresh(), Code="Success",
                                                                                     Expiration=expiration(3600))))
instance = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": cloud.address + "/", "AWS_EC2_METADATA_DISABLED": ""}
seen = reads("instance_metadata", **instance)
result("three_requests_for_it", len([r for r in seen if r[1].startswith("/latest/")]) == 3, str([r[:2] for r in seen]))
cloud.routes[ROLE] = with_session(lambda h: h.answer(404))
fails("an_instance_without_a_role", "permission denied", "has no role", **instance)
cloud.routes["/latest/api/token"] = lambda h: h.answer(403)
seen = fails("an_instance_that_refuses", "permission denied", "answered 403", **instance)
result("is_asked_once", len(seen) == 1, str(seen))
fails("an_instance_that_is_not_there", "permission denied", "does not answer", AWS_EC2_METADATA_SERVICE_ENDPOINT="http://127.0.0.1:9",
      AWS_EC2_METADATA_DISABLED="false")
cloud.routes["/latest/api/token"] = start_session
os.rename(os.path.join(home, "unused"), os.path.join(home, "config"))
cloud.routes[ROLE] = with_session(lambda h: h.answer(200, b"role+of it"))
fails("a_profile_comes_before_the_instance", "permission denied", "no-one", AWS_PROFILE="empty", **instance)
reads("a_role_by_the_instance", AWS_PROFILE="machine", **instance)
os.remove(os.path.join(home, "config"))

# ---- the addresses that are built in, in a new network
built_in = """
import os, subprocess, sys
for at in ("127.0.0.1/8", "169.254.170.2/32", "169.254.169.254/32"):
    subprocess.run(["ip", "address", "add", at, "dev", "lo"], check=False, capture_output=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
sys.path.insert(0, sys.argv[1])
import http.server, json, threading
from cloud import expiration
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_any(self):
        to = self.connection.getsockname()[0]
        document = json.dumps({"AccessKeyId": "ID", "SecretAccessKey": "secret", "Token": "t", "Expiration": expiration(3600)})
        body = {"/v2/credentials": document, "/latest/api/token": "x"}.get(self.path, "role" if self.path.endswith("/") else document)
        if to.startswith("127."):
            body = to_store(self)
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body.encode())
    do_GET = do_PUT = do_any
seen = []
def to_store(h):
    return "line " + h.headers["Authorization"].split("Credential=")[1][:2] + "\\n"
server = http.server.ThreadingHTTPServer(("0.0.0.0", 80), H)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run([sys.argv[2], "show", 'text_line("s3://b/k")'], timeout=300).returncode)
"""
here = os.path.dirname(os.path.abspath(__file__))
if subprocess.run(["unshare", "-n", "ip", "link", "set", "lo", "up"], check=False, capture_output=True).returncode == 0:
    for name, environment in (("the_address_of_ecs", {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials",
                                                      "AWS_EC2_METADATA_DISABLED": "true"}),
                              ("the_address_of_instance_metadata", {"AWS_EC2_METADATA_DISABLED": ""})):
        done = subprocess.run(["unshare", "-n", sys.executable, "-c", built_in, here, kit.millrace], check=False, timeout=300,
                              capture_output=True, text=True,
                              env={**os.environ, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1", **environment})
        result(name, done.stdout == '"line ID"\n', done.stdout + done.stderr)
else:
    print("skipped: addresses that are built in need root and iproute2")

# ---- renewal. A listing that fails is made twice: before the run, and at its beginning.
renewals = []


def renewed_container(seconds):
    def route(h):
        renewals.append(cloud.keys.copy())
        h.answer(200, document(fresh(), Expiration=expiration(seconds)))
    return route


for status, code in ((403, "InvalidAccessKeyId"), (401, "Unauthorized"), (400, "ExpiredToken")):
    cloud.refused = status, code
    cloud.routes["/container"] = renewed_container(3600)
    renewals.clear()
    count = {"left": 2}

    def forget_after_two(h, count=count):
        """The third read finds that the credentials do not hold any more."""
        count["left"] -= 1
        if count["left"] == 0:
            cloud.keys.clear()
        cloud.serve(h)

    for i in range(4):
        cloud.routes[f"/data/f-{i}"] = forget_after_two
    seen = reads(f"renewed_while_reading_after_{status}_{code}", **full)
    result(f"renewed_once_after_{status}", len(renewals) == 2, f"{len(renewals)} {[r[:2] for r in seen]}")
    for i in range(4):
        del cloud.routes[f"/data/f-{i}"]

cloud.refused = None
cloud.routes["/container"] = lambda h: h.answer(200, document(("ASIANOONE001", "no/secret+0001", "no+token/0001"),
                                                              Expiration=expiration(3600)))
secrets.extend(["ASIANOONE001", "no/secret+0001", "no+token/0001"])
seen = fails("refused_after_the_renewal", "permission denied", "403", "the container", **full)
result("no_storm_of_renewals", [r[1] for r in seen].count("/container") <= 3 and len(seen) <= 7, str([r[:2] for r in seen]))
once = iter([document(("ASIANOONE001", "no/secret+0001", "no+token/0001"), Expiration=expiration(3600))])


def container_that_ends(h):
    made = next(once, None)
    return h.answer(200, made) if made else h.answer(403)


cloud.routes["/container"] = container_that_ends
fails("a_renewal_that_fails", "permission denied", "the container", "renewing them failed", "answered 403", **full)

# ... and before they end: these are due two seconds after they were made, while the store waits for that.
due = threading.Event()
renewals.clear()


def announced(h):
    if renewals:
        due.set()
    renewed_container(302)(h)


def wait_until_renewed(h):
    due.wait(300)
    cloud.serve(h)


cloud.routes["/container"] = announced
cloud.routes["/data/f-2"] = wait_until_renewed
seen = reads("renewed_before_they_end", **full)
result("while_nothing_was_refused", due.is_set() and [r[1] for r in seen].count("/container") >= 2, str([r[:2] for r in seen]))
del cloud.routes["/data/f-2"]

# a file of keys that another program has changed meanwhile
first, second = fresh(token=False), fresh(token=False)
cloud.keys = {first[0]: first[1:]}
path = put_file("credentials", f"[default]\naws_access_key_id={first[0]}\naws_secret_access_key={first[1]}\n")
WRITTEN = f"[default]\naws_access_key_id={second[0]}\naws_secret_access_key={second[1]}\n"


def change_keys(h):
    if second[0] not in cloud.keys:
        cloud.keys = {second[0]: second[1:]}
        put_file("credentials", WRITTEN)
    cloud.serve(h)


cloud.routes["/data/f-0"] = change_keys
reads("keys_that_were_changed_in_the_file")
del cloud.routes["/data/f-0"]
cloud.keys = {}
seen = fails("keys_that_did_not_change", "permission denied", "~/.aws/credentials")
# A token that a message has room for only in part.
LONG = "a-long-token/" + "".join(f"{i:03}" for i in range(200))
secrets.append(LONG[:13])
cloud.routes["/data"] = lambda h: cloud.fail(h, 403, "NoEntry", f"these credentials may not enter: {h.headers['x-amz-security-token']}")
fails("a_long_token_is_repeated", "may not enter: ...", AWS_ACCESS_KEY_ID=second[0], AWS_SECRET_ACCESS_KEY=second[1], AWS_SESSION_TOKEN=LONG)
del cloud.routes["/data"]

result("are_not_sent_again", len(seen) <= 2, str([r[:2] for r in seen]))

# ---- secrets: everything that the program printed or wrote
cloud.keys = {second[0]: second[1:]}
saved = os.path.join(directory.name, "saved")
os.mkdir(saved)
run = show(f'text_line("{URL}").cache("{saved}/cache")', "--save-after", "2", "--state", os.path.join(saved, "state"))
outputs.append((run.stdout.decode(), run.stderr))
run = show(f'text_line("{URL}")', "--ledger", os.path.join(saved, "ledger"))
outputs.append((run.stdout.decode(), run.stderr))
bench = Run(["bench", f'text_line("{URL}")', "--limit", "3", "--trace", os.path.join(saved, "trace")])
outputs.append((bench.stdout.decode(), bench.stderr))
explained = Run(["explain", f'text_line("{URL}")'])
outputs.append((explained.stdout.decode(), explained.stderr))
for folder, _, names in os.walk(saved):
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            outputs.append((f.read().decode(errors="replace"), name))
written = sorted(os.listdir(saved))
wanted = list(dict.fromkeys(secrets + [urllib.parse.quote(s, safe="") for s in secrets]))
found = [(s, o) for s in wanted for o in outputs if s in o[0] or s in o[1]]
result("no_secret_is_printed_or_saved", not found and len(outputs) > 50 and "trace" in written and bench.status == 0, f"{found[:3]} {written} {len(outputs)} {bench}")
kit.end()
