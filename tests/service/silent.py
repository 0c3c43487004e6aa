# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Programs with a valid certificate that say nothing to a dispatcher or a worker, more of them than it takes: they make
way for others, and a client that is slow to read is not mistaken for one."""
import re
import resource
import ssl
import subprocess
import time

import kit
from certificates import Authority
from hostile_frames import field, frame, hello, is_closed
from kit import result

ca = Authority(kit.directory, "ours")
pair = ca.issue("server")
tls = ["--tls-cert", pair[0], "--tls-key", pair[1], "--tls-ca", ca.pem]
daemon = [*tls, "--tls-client-ca", ca.pem]
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
if most < 4096:
    kit.skip("all", f"no more than {most} files may be open here")
    kit.end()
d = kit.Dispatcher("--tls-cert", pair[0], "--tls-key", pair[1], "--tls-client-ca", ca.pem)
w = kit.Daemon("worker", "--dispatcher", d.at, *daemon, name="worker")
GRAPH = 'range(0, %d, 1).distribute("%s", transfer="tcp")'


def reader(n):
    return subprocess.Popen([kit.millrace, "show", *tls, GRAPH % (n, d.at)], cwd=kit.directory,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


context = ssl.create_default_context(cafile=ca.pem)
context.load_cert_chain(*pair)


def connected(to):
    return context.wrap_socket(kit.connect(to), server_hostname="127.0.0.1")


def shaken(to, role):
    """A peer that has shaken hands; None: it was refused."""
    try:
        s = connected(to)
        s.sendall(hello(role=role))
        s.recv(65536)
        s.sendall(frame(field(3, b"")))
        return s if s.recv(65536) else None
    except OSError:
        return None


slow = reader(200000)
result("a_client_reads", slow.stdout.readline() != "")
half = [connected(at) for at in (d.at, w.at)]
crowds = [(d, [shaken(d.at, 4)]), (w, [shaken(w.at, 3)])]
for to, crowd in crowds:
    while crowd[-1] and len(crowd) < 1100:
        crowd.append(shaken(to.at, 4 if to is d else 3))
    result(f"full {to.process.args[1]}", len(crowd) > 1000,
           f"{len(crowd)} connections\n{to.log()[-1000:]}")
for s, to in zip(half, (d, w)):
    result(f"a_handshake_of_tls_alone_is_ended {to.process.args[1]}", is_closed(s, kit.PATIENCE), to.log()[-1000:])


def served():
    p = reader(1000)
    out, err = p.communicate(timeout=kit.PATIENCE)
    served.why = err
    return p.returncode == 0 and out.count("\n") == 1000


result("others_are_served", kit.until(served), served.why + d.log()[-1000:] + w.log()[-1000:])
for to, crowd in crowds:
    result(f"the_silent_make_way {to.process.args[1]}",
           kit.until(lambda: "it has said nothing for 10 s" in to.log()), to.log()[-1000:])
rest, error = slow.stdout.read(), slow.stderr.read()
result("a_slow_client_stays", slow.wait(kit.PATIENCE) == 0 and rest.count("\n") == 199999 and not error,
       f"{slow.returncode}, {rest.count(chr(10))} lines: {error}\n{d.log()[-1000:]}")
for _, crowd in crowds:
    for s in filter(None, crowd):
        s.close()

# Peers with a certificate that say the same wrong thing, again and again: a limited number of lines, then a count.
flood = kit.Dispatcher("--tls-cert", pair[0], "--tls-key", pair[1], "--tls-client-ca", ca.pem, name="flood")
begin = time.monotonic()
for _ in range(230):
    s = shaken(flood.at, 4)
    s.sendall(bytes(100))
    if not is_closed(s):
        break
    s.close()
minutes = (time.monotonic() - begin) // 60 + 1
result("a_flood_ends_well", flood.stop() == 0, flood.log()[-1000:])
lines = len(re.findall("warning: the connection from .* was closed", flood.log()))
left_out = [int(n) for n in re.findall(r"(\d+) more messages like this were left out: the connection from", flood.log())]
result("the_log_is_limited", lines <= 200 * minutes and lines + sum(left_out) == 230,
       f"{lines} lines, {left_out} left out, {minutes} minutes\n{flood.log()[-2000:]}")
result("all_end_well", w.stop() == 0 and d.stop() == 0, w.log()[-1000:] + d.log()[-1000:])
kit.end()
