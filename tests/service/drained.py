# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""A worker that `millrace service drain` takes out ends, also where the dispatcher is killed before the worker has
heard of it; one that is started at its address serves; and the client notices nothing."""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import kit  # noqa: E402
from kit import result  # noqa: E402
from ports import ports  # noqa: E402

GRAPH, OPTIONS = "range(300000).shuffle(500, seed=3).batch(2)", "streams=4, seed=1, max_outstanding_bytes=20000"
at, one_at = (f"127.0.0.1:{port}" for port in ports(2))


def serve(name, *words):
    return kit.Daemon("worker", "--dispatcher", at, *words, name=name)


def state(worker):
    return next((w["state"] for w in kit.ask(at, "workers") or [] if w["worker"] == worker), None)


def service(*words):
    return subprocess.Popen([kit.millrace, "service", *words, "--dispatcher", at, "--timeout", str(kit.PATIENCE)],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


d = kit.Dispatcher("--state", "state", listen=at)
one, two = serve("one", "--listen", one_at), serve("two")
kit.until(lambda: [state(one_at), state(two.at)] == ["serving"] * 2)
client = subprocess.Popen([kit.millrace, "show", f'{GRAPH}.distribute("{at}", {OPTIONS})'], cwd=kit.directory,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
kit._processes.append(client)
got = client.stdout.read(50000)

one.process.send_signal(signal.SIGSTOP)  # it hears nothing
tool = service("drain", one_at)
result("it_drains", kit.until(lambda: state(one_at) in ("draining", "lost")), str(state(one_at)))
later = service("register", "range(3)")  # on record after the drain
result("on_record", later.wait(kit.PATIENCE) == 0)
d.stop(signal.SIGKILL)
_, said = tool.communicate(timeout=kit.PATIENCE)  # 0: it was taken for dead before
result("who_waits_is_told", tool.returncode == 0 or "closed the connection" in said, said)
d = kit.Dispatcher("--state", "state", listen=at, name="again")
again = service("drain", one_at)
one.process.send_signal(signal.SIGCONT)
result("it_ends_all_the_same", one.process.wait(kit.PATIENCE) == 0, one.log() + d.log())
_, said = again.communicate(timeout=kit.PATIENCE)
result("who_asks_again_is_answered", again.returncode == 0, said)
d.stop(signal.SIGKILL)
d = kit.Dispatcher("--state", "state", listen=at, name="once_more")
another = serve("another", "--listen", one_at)
result("another_one_at_its_address_serves", kit.until(lambda: state(one_at) == "serving"), d.log())
got += client.stdout.read()
result("the_client_notices_nothing", client.wait(kit.PATIENCE) == 0 and got == kit.local(GRAPH, OPTIONS), d.log())
result("all_end_well", [x.stop() for x in (another, two, d)] == [0, 0, 0], d.log())
kit.end()
