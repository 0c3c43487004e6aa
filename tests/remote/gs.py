#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Google Cloud Storage: its sources of access, listings in pages, and objects that are replaced. The store and Google's
servers are imitated; signatures of requests and of assertions are verified."""
import base64
import json
import os
import shutil
import subprocess
import urllib.parse

import kit
from cloud import Cloud
from kit import Run, directory, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
cloud = Cloud(page=3)
os.environ["STORAGE_EMULATOR_HOST"] = cloud.address
LINES = [f'"{i}"' for i in range(8)]
for i in range(8):
    cloud.put("data", f"many/f-{i}", b"%d\n" % i)
cloud.put("data", "many/deep/f-9", b"9\n")
cloud.put("data", "many/folder/", b"")
for key in ("a b", "a+b", "a%20b", "ä", "a//b", "a?b=c", "x;y@:$!()"):
    cloud.put("data", "odd/" + key, key.encode() + b"\n")
outputs, secrets, asked = [], [], []


def read(url="gs://data/many/f-*", **environment):
    cloud.take()
    run = show(f'text_line("{url}")', "-v", MILLRACE_LOG="debug", **environment)
    outputs.append((run.stdout.decode(), run.stderr))
    return run, cloud.take()


def reads(name, want=LINES, url="gs://data/many/f-*", **environment):
    run, seen = read(url, **environment)
    result(name, run.status == 0 and run.lines == want, f"{run}\n{[r[:2] for r in seen]}")
    return seen


def fails(name, *words, url="gs://data/many/f-*", **environment):
    run, seen = read(url, **environment)
    result(name, run.status == 1 and all(w in run.stderr for w in words), f"{run}\n{[r[:2] for r in seen]}")
    return seen


def fresh():
    """A token that the store accepts from now on, and no other."""
    made = f"ya29.made-token_{len(secrets):04d}"
    secrets.append(made)
    cloud.bearers.clear()
    cloud.bearers.add(made)
    return made


def put_file(name, document):
    path = os.path.join(directory.name, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as f:
        json.dump(document, f)
    return path


# ---- no access, and a token
cloud.anonymous = True
seen = reads("anonymous")
result("pages_and_no_other_requests", len(seen) == 3 + 8 and all(r[0] == "GET" and "Authorization" not in r[2] for r in seen),
       str([r[:2] for r in seen]))
cloud.anonymous = False
fails("anonymous_is_refused", "permission denied", "403", "no credentials were sent", "GOOGLE_OAUTH_ACCESS_TOKEN",
      "GOOGLE_APPLICATION_CREDENTIALS", "metadata server", "GCS_HMAC_KEY")
seen = reads("a_token", GOOGLE_OAUTH_ACCESS_TOKEN=fresh())
result("stored_bytes_are_asked_for", all(r[2].get("Accept-Encoding") == "gzip" for r in seen), str(seen[0]))
secrets.append("ya29.wrong")
fails("a_wrong_token", "permission denied", "403", "GOOGLE_OAUTH_ACCESS_TOKEN", GOOGLE_OAUTH_ACCESS_TOKEN="ya29.wrong")
host = cloud.address.removeprefix("http://")
reads("a_server_without_a_scheme", STORAGE_EMULATOR_HOST=host, GOOGLE_OAUTH_ACCESS_TOKEN=fresh())

# ---- keys
cloud.keys["GOOGMADE1234"] = ("hmac/secret+12", None)
secrets.extend(["GOOGMADE1234", "hmac/secret+12"])
hmac_keys = {"GCS_HMAC_KEY": "GOOGMADE1234", "GCS_HMAC_SECRET": "hmac/secret+12"}
reads("hmac_keys", **hmac_keys)
fails("a_wrong_secret", "permission denied", "GCS_HMAC_KEY", GCS_HMAC_KEY="GOOGMADE1234", GCS_HMAC_SECRET="wrong1")
fails("a_key_without_its_secret", "invalid argument", "GCS_HMAC_SECRET", GCS_HMAC_KEY="GOOGMADE1234")

# ---- files
state = {"status": 200}


def tokens(h):
    words = dict(urllib.parse.parse_qsl(h.body.decode()))
    asked.append(words)
    if state["status"] != 200:
        return h.answer(state["status"], b'{"error": "invalid_grant", "error_description": "Bad Request"}')
    return h.answer(200, json.dumps({"access_token": fresh(), "expires_in": 3599, "token_type": "Bearer"}).encode())


cloud.routes["/token"] = tokens
user = {"type": "authorized_user", "client_id": "id&1", "client_secret": "client=secret", "refresh_token": "1//refresh+token",
        "token_uri": cloud.address + "/token"}
secrets.extend(["client=secret", "1//refresh+token"])
user_file = put_file("user.json", user)
reads("a_user", GOOGLE_APPLICATION_CREDENTIALS=user_file)
result("the_refresh_token_is_sent", asked == [{"grant_type": "refresh_token", "client_id": "id&1", "client_secret": "client=secret",
                                              "refresh_token": "1//refresh+token"}], str(asked))
os.makedirs(os.path.join(directory.name, ".config", "gcloud"))
shutil.copy(user_file, os.path.join(directory.name, ".config", "gcloud", "application_default_credentials.json"))
reads("the_file_of_gcloud")
os.remove(os.path.join(directory.name, ".config", "gcloud", "application_default_credentials.json"))
put_file("sdk/application_default_credentials.json", user)
reads("the_folder_of_gcloud", CLOUDSDK_CONFIG=os.path.join(directory.name, "sdk"))
state["status"] = 400
fails("a_user_that_is_refused", "permission denied", "400", "invalid_grant", GOOGLE_APPLICATION_CREDENTIALS=user_file)
state["status"] = 503
asked.clear()
fails("a_server_of_tokens_that_fails", "unavailable", "503", GOOGLE_APPLICATION_CREDENTIALS=user_file)
result("is_asked_four_times", len(asked) in (4, 8), str(len(asked)))
state["status"] = 200
fails("no_file", "permission denied", "does not exist", "/none.json", GOOGLE_APPLICATION_CREDENTIALS="/none.json")
for name, document, word in (("another_type", {"type": "external_account"}, "external_account"), ("no_type", {}, "missing"),
                             ("a_user_without_a_token", {**user, "refresh_token": ""}, "no refresh_token"),
                             ("an_account_without_a_key", {"type": "service_account", "client_email": "a"}, "private_key"),
                             ("an_account_with_a_bad_key", {"type": "service_account", "client_email": "a", "private_key": "x"}, "PEM")):
    fails(name, word, "bad.json", GOOGLE_APPLICATION_CREDENTIALS=put_file("bad.json", document))
OPENSSL = shutil.which("openssl")
if OPENSSL:
    def openssl(*arguments, data=None):
        return subprocess.run([OPENSSL, *arguments], cwd=directory.name, input=data, capture_output=True, check=False)

    openssl("genrsa", "-out", "key.pem", "2048")
    openssl("rsa", "-in", "key.pem", "-pubout", "-out", "public.pem")
    with open(os.path.join(directory.name, "key.pem"), encoding="ascii") as f:
        private = f.read()
    secrets.append(private.splitlines()[5])
    account = put_file("account.json", {"type": "service_account", "client_email": "reader@project", "private_key": private,
                                        "private_key_id": "k1", "token_uri": cloud.address + "/token"})

    def decoded(text):
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    asked.clear()
    reads("a_service_account", GOOGLE_APPLICATION_CREDENTIALS=account)
    head, claims, signature = asked[0]["assertion"].split(".")
    with open(os.path.join(directory.name, "signature"), "wb") as f:
        f.write(decoded(signature))
    verified = openssl("dgst", "-sha256", "-verify", "public.pem", "-signature", "signature", data=f"{head}.{claims}".encode())
    claims = json.loads(decoded(claims))
    result("its_assertion_is_signed", verified.returncode == 0 and json.loads(decoded(head)) == {"alg": "RS256", "typ": "JWT", "kid": "k1"},
           f"{verified} {decoded(head)}")
    result("its_claims", claims["iss"] == "reader@project" and claims["aud"] == cloud.address + "/token" and
           claims["exp"] - claims["iat"] == 3600 and claims["scope"].endswith("/devstorage.read_write") and
           asked[0]["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer" and len(asked) == 1, f"{claims} {asked}")
else:
    print("skipped: a service account needs openssl")

# ---- the machine
METADATA = "/computeMetadata/v1/instance/service-accounts/default/token"
flavor = {"Metadata_Flavor": "Google"}


def metadata(h):
    if h.headers.get("Metadata-Flavor") != "Google":
        return h.answer(403)
    return h.answer(200, json.dumps({"access_token": fresh(), "expires_in": 3599}).encode(), **flavor)


cloud.routes[METADATA] = metadata
machine = {"GCE_METADATA_HOST": host, "NO_GCE_CHECK": ""}
seen = reads("the_metadata_server", **machine)
result("one_request_for_it", [r[1] for r in seen].count(METADATA) == 1, str([r[:2] for r in seen]))
reads("comes_before_keys", **machine, GCS_HMAC_KEY="GOOGMADE1234", GCS_HMAC_SECRET="wrong")
cloud.routes[METADATA] = lambda h: h.answer(200, b'{"access_token": "other", "expires_in": 3599}')
reads("another_server_is_none", **machine, **hmac_keys)
cloud.routes[METADATA] = lambda h: h.answer(404, **flavor)
reads("a_machine_without_an_account", **machine, **hmac_keys)
reads("a_server_that_is_not_there", GCE_METADATA_HOST="127.0.0.1:9", NO_GCE_CHECK="", **hmac_keys)
cloud.routes[METADATA] = metadata
count = {"left": 3}


def forget_token(h):
    count["left"] -= 1
    if count["left"] == 0:
        cloud.bearers.clear()
    cloud.serve(h)


cloud.refused = 401, "AuthenticationRequired"
for i in range(8):
    cloud.routes[f"/data/many/f-{i}"] = forget_token
seen = reads("a_token_that_ends_while_reading", **machine)
result("is_renewed_once", [r[1] for r in seen].count(METADATA) == 2, str([r[:2] for r in seen]))
for i in range(8):
    del cloud.routes[f"/data/many/f-{i}"]
cloud.refused = None

# ---- names and listings
cloud.anonymous = True
reads("deeper_keys", ['"9"'], "gs://data/many/*/f-*")
reads("odd_keys", sorted(f'"{k}"' for k in ("a b", "a+b", "a%20b", "ä", "a?b=c", "x;y@:$!()")) and
      [f'"{k}"' for k in sorted(("a b", "a+b", "a%20b", "ä", "a?b=c", "x;y@:$!()"), key=str.encode)], "gs://data/odd/*")
reads("one_object", ['"3"'], "gs://data/many/f-3")
fails("no_match", "not found", "gs://data/none/x-*", url="gs://data/none/x-*")
fails("no_object", "not found", "gs://data/none", url="gs://data/none")
for url, words in (("gs://", "no bucket"), ("gs:///x", "no bucket"), ("gs://data", "names a bucket"), ("gs://b*/x", "bucket")):
    fails(f"not_a_name_{len(url)}_{words}", words, "gs://bucket/key" if "bucket" == words.split()[-1] and "*" not in url else "bucket", url=url)
explained = Run(["explain", 'text_line("gs://data/many/f-*")'])
result("explain_counts_them", b"8" in explained.stdout and b"16" in explained.stdout, f"{explained}\n{explained.stdout}")
with open(os.path.join(directory.name, "t"), "w", encoding="ascii") as f:
    f.write("")
written = Run(["write", "--out", os.path.join(directory.name, "t"), "--shards", "2", "--expr", 'range(900).map(i => {"a": i})'])
for name in sorted(os.listdir(directory.name)):
    if name.startswith("t-"):
        Run(["index", os.path.join(directory.name, name)])
        for file in (name, name + ".idx"):
            with open(os.path.join(directory.name, file), "rb") as f:
                cloud.put("data", "table/" + file, f.read())
graph = 'tfrecord("{}").global_shuffle(seed=3).map(x => parse_example(x, a=int64)).batch(100)'
local, remote = show(graph.format(os.path.join(directory.name, "t-*"))), show(graph.format("gs://data/table/t-*"))
result("global_shuffle", local.status == 0 and local.stdout == remote.stdout, f"{local}\n{remote}")

# ---- replaced objects, by ETag and by generation
for name, etags, condition in (("etag", True, "If-Match"), ("generation", False, "x-goog-if-generation-match")):
    cloud.etags = etags
    cloud.put("data", "many/f-5", b"5\n")
    seen = reads(f"objects_with_{name}")
    result(f"{condition}_is_sent", all(r[2].get(condition) for r in seen if "list-type" not in r[1]), str(seen[-1]))
    saved = os.path.join(directory.name, "state")
    first = show('text_line("gs://data/many/f-*")', "--save-after", "3", "--state", saved)
    rest = show('text_line("gs://data/many/f-*")', "--restore", saved)
    result(f"a_position_with_{name}", first.lines + rest.lines == LINES, f"{first}\n{rest}")

    def replace(h):
        cloud.put("data", "many/f-5", b"x\n")
        cloud.serve(h)

    cloud.routes["/data/many/f-5"] = replace
    run, _ = read()
    result(f"replaced_by_{name}", run.status == 1 and "failed precondition" in run.stderr and "f-5" in run.stderr and
           run.lines == LINES[:5], str(run))
    del cloud.routes["/data/many/f-5"]
    rest = show('text_line("gs://data/many/f-*")', "--restore", saved)
    result(f"a_position_of_others_by_{name}", rest.status == 1 and "failed precondition" in rest.stderr, str(rest))

found = [(s, o) for s in secrets for o in outputs for t in (s, urllib.parse.quote(s, safe="")) if t in o[0] or t in o[1]]
result("no_secret_is_printed", not found and len(outputs) > 30, str(found[:3]))
kit.end()
