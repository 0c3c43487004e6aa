#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Buckets of Ceph's gateway: names, patterns, listings, credentials, replaced objects. A forwarder between the program
and the gateway counts requests and answers some itself."""
import os

import gateway
import kit
from forwarder import Forwarder
from kit import Run, directory, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if gateway.missing():
    kit.skip_all(gateway.missing())

with gateway.Gateway() as store:
    os.environ.update(store.environment)
    forwarder = Forwarder(store.port)
    os.environ["AWS_ENDPOINT_URL"] = forwarder.endpoint
    store.make_bucket("data")

    # ---- names of keys
    odd = ["a b", "a+b", "a%20b", "a&b<c>'\"", "ä", "a//b", "a=b?c", "~-_.", "c*d", "x;y,z@:$!()"]
    for key in odd:
        store.put("data", "odd/" + key, key.encode() + b"\n")
    store.put("data", "odd/folder/", b"")
    listed = show('list_files("s3://data/odd/*", "s3://data/odd/*//*")')
    want = sorted(f"s3://data/odd/{k}".encode() for k in odd)
    got = [eval(line).encode() for line in listed.lines]  # pylint: disable=eval-used
    result("odd_keys_are_listed_bytewise", got == want, f"{listed}\n{got}\n{want}")
    read = show('text_line("s3://data/odd/*")')
    result("odd_keys_are_read", sorted(eval(x) for x in read.lines) == sorted(k for k in odd if "//" not in k),  # pylint: disable=eval-used
           f"{read}\n{read.lines}")
    literal = show('list_files("s3://data/odd/c*d")')
    result("a_key_that_is_the_pattern", literal.lines == ['"s3://data/odd/c*d"'], str(literal))
    literal = show('list_files("s3://data/odd/a+b", "s3://data/odd/[a]+*")')
    result("a_key_and_a_pattern", literal.lines == ['"s3://data/odd/a+b"'] * 2, str(literal))

    # ---- listings
    for i in range(1005):
        store.put("data", f"many/f-{i:05d}", b"%d\n" % i)
        if i % 300 == 0:
            store.put("data", f"many/deep-{i}/f-{i:05d}", b"deep\n")
    forwarder.take()
    names = show('list_files("s3://data/many/*")')
    seen = forwarder.take()
    result("pages", names.lines == [f'"s3://data/many/f-{i:05d}"' for i in range(1005)] and len(seen) == 2,
           f"{names}\n{len(seen)} requests")
    lines = show('text_line("s3://data/many/f-*")')
    seen = forwarder.take()
    gets = [path for _, path, _ in seen if "list-type" not in path]
    result("each_object_once", lines.lines == [f'"{i}"' for i in range(1005)] and len(gets) == 1005 == len(set(gets)) and
           all(method == "GET" for method, _, _ in seen), f"{lines}\n{len(gets)} GETs")
    first = show('text_line("s3://data/many/f-*").take(1)')
    seen = forwarder.take()
    result("objects_are_opened_when_they_are_read", first.lines == ['"0"'] and len(seen) < 10, f"{first}\n{len(seen)} requests")
    deep = show('text_line("s3://data/many/*/f-0*")')
    result("a_wildcard_in_the_middle", deep.lines == ['"deep"'] * 4, str(deep))
    none = show('text_line("s3://data/none/x-*")')
    result("no_match", none.status == 1 and "not found" in none.stderr and "s3://data/none/x-*" in none.stderr, str(none))
    bucket = show('text_line("s3://no-such-bucket/x")')
    result("no_bucket", bucket.status == 1 and "NoSuchBucket" in bucket.stderr and "404" in bucket.stderr and
           "request id" in bucket.stderr, str(bucket))
    shards = [show('text_line("s3://data/many/f-000*").shard(3, %d)' % i) for i in range(3)]
    result("shards", [s.lines for s in shards] == [[f'"{i}"' for i in range(k, 100, 3)] for k in range(3)], str(shards[0]))

    # ---- positions and replaced objects
    state = os.path.join(directory.name, "state")
    start = show('text_line("s3://data/many/f-0000*")', "--save-after", "4", "--state", state)
    rest = show('text_line("s3://data/many/f-0000*")', "--restore", state)
    result("a_position", start.lines + rest.lines == [f'"{i}"' for i in range(10)], f"{start}\n{rest}")
    store.put("data", "many/f-00007", b"other\n")
    rest = show('text_line("s3://data/many/f-0000*")', "--restore", state)
    result("a_position_of_other_objects", rest.status == 1 and "failed precondition" in rest.stderr, str(rest))
    again = [True]

    def replace(h):
        if "list-type" not in h.path and again:
            again.pop()
            store.put("data", "many/f-00003", b"later\n")

    forwarder.hook = replace
    late = show('text_line("s3://data/many/f-0000*")')
    forwarder.hook = None
    result("an_object_replaced_after_its_listing", late.status == 1 and "failed precondition" in late.stderr and
           "f-00003" in late.stderr and late.lines == ['"0"', '"1"', '"2"'], str(late))
    snapshot = f'text_line("s3://data/many/f-0000*").cache("{directory.name}/cached")'
    made = show(snapshot)
    forwarder.take()
    store_again = show(snapshot)
    seen = forwarder.take()
    result("a_cache_of_objects", made.status == 0 and store_again.lines == made.lines and
           all("list-type" in path for _, path, _ in seen), f"{made}\n{store_again}\n{seen}")
    store.put("data", "many/f-00005", b"newer\n")
    stale = show(snapshot)
    result("a_cache_of_replaced_objects", stale.status == 1 and "f-00005" in stale.stderr, str(stale))

    # ---- credentials
    for name, environment, words in (
            ("a_wrong_secret", {"AWS_SECRET_ACCESS_KEY": "5ec2e7"}, ["403", "SignatureDoesNotMatch", "AWS_ACCESS_KEY_ID"]),
            ("an_unknown_key", {"AWS_ACCESS_KEY_ID": "5ec2e7", "AWS_SECRET_ACCESS_KEY": "5ec2e7"}, ["403", "InvalidAccessKeyId"]),
            ("no_credentials", {"AWS_ACCESS_KEY_ID": ""}, ["AWS_ACCESS_KEY_ID", "~/.aws/credentials", "profile default"]),
            ("anonymous", {"MILLRACE_S3_ANONYMOUS": "1"}, ["403", "AccessDenied", "no credentials were sent"])):
        refused = show('text_line("s3://data/many/f-00000")', "-v", **environment)
        result(name, refused.status == 1 and "permission denied" in refused.stderr and
               all(w in refused.stderr for w in words) and "5ec2e7" not in refused.stderr, str(refused))
    os.mkdir(os.path.join(directory.name, ".aws"))
    with open(os.path.join(directory.name, ".aws", "credentials"), "w", encoding="ascii") as f:
        f.write(f"[work]\naws_access_key_id = {store.KEY}\naws_secret_access_key = {store.SECRET}\n")
    profile = show('text_line("s3://data/many/f-00000")', AWS_ACCESS_KEY_ID="", AWS_PROFILE="work")
    result("a_profile", profile.lines == ['"0"'], str(profile))

    # ---- what other stores answer
    def skewed(h):
        return h.answer(403, b"<Error><Code>RequestTimeTooSkewed</Code><RequestId>r1</RequestId></Error>")

    def other_region(h):
        if "/eu-test-1/s3/" not in h.headers["Authorization"]:
            return h.answer(301, x_amz_bucket_region="eu-test-1")
        return h.answer(206, b"moved\n", Content_Range="bytes 0-5/6", ETag='"1"')

    def malformed_region(h):
        return h.answer(301, x_amz_bucket_region="evil.example/x")

    def no_list(h):
        return h.answer(200, b"<html>hello</html>")

    for name, hook, words in (("a_wrong_clock", skewed, ["permission denied", "clock", "r1"]),
                              ("a_region_that_is_none", malformed_region, ["failed precondition", "301"])):
        forwarder.hook = hook
        refused = show('text_line("s3://data/x")')
        result(name, refused.status == 1 and all(w in refused.stderr for w in words), str(refused))
    forwarder.hook = other_region
    moved = show('text_line("s3://data/x")')
    result("another_region", moved.lines == ['"moved"'], str(moved))
    forwarder.hook = no_list
    page = show('text_line("s3://data/x-*")')
    result("no_list", page.status == 1 and "data loss" in page.stderr and "ListBucketResult" in page.stderr, str(page))
    forwarder.hook = None

    # ---- tables and indexes
    out = os.path.join(directory.name, "t")
    Run(["write", "--out", out, "--shards", "3", "--expr", 'range(9000).map(i => {"a": i})'])
    for name in sorted(os.listdir(directory.name)):
        if name.startswith("t-"):
            Run(["index", os.path.join(directory.name, name)])
            for file in (name, name + ".idx"):
                with open(os.path.join(directory.name, file), "rb") as f:
                    store.put("data", "table/" + file, f.read())
    graph = 'tfrecord("{}").global_shuffle(seed=3).map(x => parse_example(x, a=int64)).batch(100)'
    local, remote = show(graph.format(out + "-*")), show(graph.format("s3://data/table/t-*"))
    result("global_shuffle", local.status == 0 and local.stdout == remote.stdout, f"{local}\n{remote}")
    local, remote = (show(graph.format(x), "--worker", "1/3") for x in (out + "-*", "s3://data/table/t-*"))
    result("global_shuffle_of_a_worker", local.stdout == remote.stdout, f"{local}\n{remote}")
    store.put("data", "table/t-00001-of-00003.tfrecord.idx", b"0 17\n")
    stale = show(graph.format("s3://data/table/t-*"))
    result("a_stale_index", stale.status == 1 and "stale" in stale.stderr, str(stale))
kit.end()
