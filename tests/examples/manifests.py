#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""The kustomization of examples/deployment/kubernetes: kubectl builds each overlay, with each of the two autoscalers;
every object meets the schemas of current Kubernetes, or ours of custom resources; what they name of each other is
there; and dispatcher and worker run as their containers would, with a client.

Validator and schemas are kubernetes-validate from PyPI, in a virtual environment of the build ($MR_MANIFESTS_VENV:
another one). Without it or kubectl the test is skipped."""
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "service")]
import kit  # noqa: E402
from certificates import Authority  # noqa: E402
from kit import result  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOYMENT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "deployment")
VENV = os.environ.get("MR_MANIFESTS_VENV") or os.path.join(kit.build, "venv-manifests")
PYTHON = os.path.join(VENV, "bin", "python")


def nothing(why):
    kit.skip("manifests", why)
    kit.end()


if sys.prefix == sys.base_prefix:  # again, in the virtual environment
    if not os.path.exists(PYTHON):
        for words in ([sys.executable, "-m", "venv", VENV],
                      [PYTHON, "-m", "pip", "install", "-q", "kubernetes-validate>=1.32", "jsonschema>=4.18"]):
            p = subprocess.run(words, capture_output=True, text=True, timeout=600)
            if p.returncode:
                shutil.rmtree(VENV, ignore_errors=True)
                nothing(f"kubernetes-validate cannot be installed from PyPI: {(p.stderr.strip() or ' ').splitlines()[-1]}")
    os.environ.pop("LD_PRELOAD", None)
    kit._clean()
    os.execv(PYTHON, [PYTHON, *sys.argv])
for tool in ("kubectl", "openssl"):
    if not shutil.which(tool):
        nothing(f"{tool} is not installed")

import jsonschema  # noqa: E402
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

with open(os.path.join(HERE, "schemas", "custom_resources.json")) as f:
    CUSTOM = json.load(f)


def objects(overlay, autoscaler):
    folder = kit.path(f"{overlay}-{autoscaler}")
    shutil.copytree(os.path.join(DEPLOYMENT, "kubernetes"), folder)
    at = os.path.join(folder, overlay, "kustomization.yaml")
    with open(at) as f:
        text = f.read()
    with open(at, "w") as f:  # as its comment says
        f.write(text.replace("../hpa # or ../keda", f"../{autoscaler}"))
    p = subprocess.run(["kubectl", "kustomize", os.path.join(folder, overlay)], capture_output=True, text=True)
    result(f"kustomize {overlay} {autoscaler}", p.returncode == 0, p.stderr)
    return list(yaml.safe_load_all(p.stdout))


def wrong(x):
    """What is wrong with this object."""
    kind = f"{x['apiVersion']} {x['kind']}"
    if kind not in CUSTOM["$defs"]:
        try:
            kubernetes_validate.validate(x, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as e:
            return f"{e.message} at {list(e.absolute_path)}"
        return None
    schema = {**CUSTOM, "type": "object", "required": ["metadata", "spec"], "additionalProperties": False,
              "properties": {"apiVersion": {}, "kind": {}, "metadata": {"type": "object", "required": ["name"]},
                             "spec": {"$ref": f"#/$defs/{kind.replace('/', '~1')}"}}}
    e = next(jsonschema.Draft202012Validator(schema).iter_errors(x), None)
    return f"{e.message} at {list(e.absolute_path)}" if e else None


def find(all_, kind, name):
    return next((x for x in all_ if x["kind"] == kind and x["metadata"]["name"] == name), None)


def selected(all_, labels):
    """The pod templates that have these labels."""
    return [x for x in all_ if "template" in x.get("spec", {}) and
            labels.items() <= x["spec"]["template"]["metadata"]["labels"].items()]


def dangling(all_):
    """What is named and not there."""
    bad = []
    issued = {x["spec"]["secretName"] for x in all_ if x["kind"] == "Certificate"}
    issued |= {"millrace-token", "millrace-s3"}  # made by hand, as the comments say
    for x in all_:
        spec, title = x.get("spec", {}), f"{x['kind']} {x['metadata']['name']}"
        for secret in re.findall(r"'(?:secretName|secretRef': {'name)': '([\w-]+)'", str(spec)):
            bad += [f"{title}: secret {secret}"] if secret not in issued else []
        selector = spec.get("podSelector") or spec.get("selector") or {}
        labels = selector.get("matchLabels", selector)
        pods = selected(all_, labels) if x["kind"] != "ServiceMonitor" else [
            y for y in all_ if y["kind"] == "Service" and labels.items() <= y["metadata"]["labels"].items()]
        if labels and not pods:
            bad.append(f"{title}: selects nothing")
        ports = {p["name"] for y in pods if "template" in y["spec"]
                 for p in y["spec"]["template"]["spec"]["containers"][0]["ports"]}
        if x["kind"] == "Service":
            bad += [f"{title}: port {p['port']}" for p in spec["ports"] if p["port"] not in
                    [q["containerPort"] for q in pods[0]["spec"]["template"]["spec"]["containers"][0]["ports"]]]
        if x["kind"] == "NetworkPolicy":
            bad += [f"{title}: port {p['port']}" for rule in spec["ingress"] for p in rule["ports"]
                    if p["port"] not in ports]
        target = spec.get("scaleTargetRef")
        if target and not find(all_, target.get("kind", "Deployment"), target["name"]):
            bad.append(f"{title}: {target}")
        issuer = spec.get("issuerRef")
        if issuer and not find(all_, "Issuer", issuer["name"]):
            bad.append(f"{title}: {issuer}")
        if "template" in spec:
            pod = spec["template"]["spec"]
            volumes = {v["name"] for v in pod["volumes"] + [
                {"name": c["metadata"]["name"]} for c in spec.get("volumeClaimTemplates", [])]}
            mounts = {m["name"] for m in pod["containers"][0]["volumeMounts"]}
            if volumes != mounts:
                bad.append(f"{title}: volumes {volumes}, mounts {mounts}")
    return bad


def words_of(pod, files, **replaced):
    """The words that start the container of a pod here, its environment in front: its files are in files."""
    c = pod["containers"][0]
    env = [f"{e['name']}={e['value']}" for e in c["env"] if "value" in e]
    words = ["env", "-u", "MILLRACE_TOKEN_FILE", *env, kit.millrace, *c["command"][1:]]
    for i, word in enumerate(words):
        for old, new in {**replaced, "$(POD_IP)": "127.0.0.1", "0.0.0.0": "127.0.0.1", ":5050": ":0", ":5051": ":0",
                         ":8050": ":0", ":8051": ":0"}.items():
            word = word.replace(old, new)
        words[i] = re.sub(r"([=\"])/(token|tls|state|data)\b", rf"\1{files}/\2", word)
    return words


class Container(kit.Daemon):
    def __init__(self, workload, files, name, **replaced):
        words = words_of(workload["spec"]["template"]["spec"], files, **replaced)
        at = words.index(kit.millrace)
        options = [part for word in words[at + 1:] for part in word.split("=", 1)]
        super().__init__(*options, name=name, before=words[:at])


def secrets(all_, name):
    """A folder with the files that pods have: the volumes token and data, and as tls the secret of this name."""
    files = kit.path(f"files-{name}")
    for folder in ("token", "tls", "state", "data"):
        os.makedirs(os.path.join(files, folder))
    with open(os.path.join(files, "token", "token"), "w") as f:
        f.write("t" * 64)
    with open(os.path.join(files, "data", "a.txt"), "w") as f:
        f.write("1\n2\n3\n4\n")
    tls = os.path.join(files, "tls")
    shutil.copy(ca.pem, os.path.join(tls, "ca.crt"))
    for x in all_:
        if x["kind"] == "Certificate" and x["spec"]["secretName"] == name:
            cert, key = ca.issue(x["metadata"]["name"], to=os.path.join(tls, "tls"),
                                 names=",".join(f"DNS:{n}" for n in x["spec"].get("dnsNames", ["client"])))
            os.rename(cert, os.path.join(tls, "tls.crt"))
    return files


def answers_probe(daemon, workload):
    """As the kubelet asks, which has no certificate and verifies none."""
    probe = workload["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]
    url = f"{probe.get('scheme', 'HTTP').lower()}://{daemon.page}{probe['path']}"
    try:
        with urllib.request.urlopen(url, timeout=kit.PATIENCE, context=ssl._create_unverified_context()) as r:
            return r.status == 200, r.status
    except OSError as e:
        return False, f"{url}: {e}"


def is_scraped(daemon, monitor):
    """By what the ServiceMonitor says of TLS."""
    tls = monitor["spec"]["endpoints"][0].get("tlsConfig")
    s = kit.connect(daemon.page)
    try:
        if tls:
            s = ssl.create_default_context(cafile=ca.pem).wrap_socket(s, server_hostname=tls["serverName"])
        s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b""
        while part := s.recv(65536):
            answer += part
    except OSError as e:
        return False, str(e)
    finally:
        s.close()
    return b"millrace_" in answer, answer


def runs(overlay, all_, client):
    """Dispatcher, worker and client, with the files that secrets would have."""
    files = secrets(all_, f"millrace-{'tls' if overlay == 'tls' else 'token'}")
    d = Container(find(all_, "StatefulSet", "millrace-dispatcher"), files, f"{overlay}-dispatcher")
    at = {"millrace-dispatcher:5050": d.at}
    w = Container(find(all_, "Deployment", "millrace-worker"), files, f"{overlay}-worker", **at)
    own = files if overlay == "plain" else secrets(all_, "millrace-client")
    words = words_of(client["spec"], own, **{**at, '"/data/': f'"{files}/data/'})
    for name, command, allowed in (("a client reads", words, True),
                                   ("a stranger does not", words[words.index(kit.millrace):], False)):
        p = subprocess.run(command, capture_output=True, text=True, timeout=kit.PATIENCE)
        result(f"{overlay} {name}", p.stdout.split() == (['"1"', '"2"', '"3"'] if allowed else []) and
               (p.returncode == 0) == allowed, p.stdout + p.stderr + d.log() + w.log())
    for name, daemon, workload in (("dispatcher", d, find(all_, "StatefulSet", "millrace-dispatcher")),
                                   ("worker", w, find(all_, "Deployment", "millrace-worker"))):
        result(f"{overlay} {name} answers its probe", *answers_probe(daemon, workload))
        result(f"{overlay} {name} is scraped", *is_scraped(daemon, find(all_, "ServiceMonitor", "millrace")))
    result(f"{overlay} ends", [w.stop(), d.stop()] == [0, 0])


ca = Authority(kit.directory, "ca")
for overlay in ("plain", "tls"):
    for autoscaler in ("hpa", "keda"):
        all_ = objects(overlay, autoscaler)
        for x in all_:
            why = wrong(x)
            result(f"{overlay} {autoscaler} {x['kind']} {x['metadata']['name']}", not why, why)
        result(f"{overlay} {autoscaler} what is named is there", not dangling(all_), dangling(all_))
    with open(os.path.join(DEPLOYMENT, "kubernetes", overlay, "client.yaml")) as f:
        client = yaml.safe_load(f)
    result(f"{overlay} client", not wrong(client), wrong(client))
    result(f"{overlay} client has the label", [p for p in all_ if p["kind"] == "NetworkPolicy" and any(
        q.get("podSelector", {}).get("matchLabels") == client["metadata"]["labels"]
        for rule in p["spec"]["ingress"] for q in rule["from"])], client["metadata"])
    runs(overlay, all_, client)
with open(os.path.join(DEPLOYMENT, "kubernetes-training.yaml")) as f:
    for x in yaml.safe_load_all(f):
        result(f"training {x['kind']}", not wrong(x), wrong(x))
x = find(all_, "ServiceMonitor", "millrace")
x["spec"]["endpoints"][0]["intervall"] = "15s"
result("a wrong field of a custom resource is noticed", "intervall" in str(wrong(x)), wrong(x))
x = find(all_, "Deployment", "millrace-worker")
x["spec"]["template"]["spec"]["volume"] = []
result("a wrong field is noticed", "volume" in str(wrong(x)), wrong(x))
kit.end()
