# SPDX-License-Identifier: Apache-2.0
"""tf.data's service: a dispatcher, a worker and a client in separate processes; elements of 1 MiB go from the
worker to the client over loopback. Prints a line of JSON: bytes, and the CPU seconds of all three between the first
element and the last (getrusage), without what starting TensorFlow costs.
   data_service.py ELEMENTS"""
import json
import os
import resource
import subprocess
import sys

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")
WARM = 50  # elements before the measurement begins


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def serve(server, address):
    """Says where it listens, and for each line of standard input how much CPU it has used."""
    print(address, flush=True)
    for _ in sys.stdin:
        print(cpu(), flush=True)


def start(*words):
    p = subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True)
    return p, p.stdout.readline().strip()


def used(p):
    p.stdin.write("\n")
    p.stdin.flush()
    return float(p.stdout.readline())


def client(elements):
    import tensorflow as tf
    dispatcher, target = start("dispatcher")
    worker, _ = start("worker", target)
    ds = tf.data.Dataset.from_tensors(tf.zeros([1 << 20], tf.uint8)).repeat(elements + WARM)
    ds = ds.apply(tf.data.experimental.service.distribute(
        processing_mode=tf.data.experimental.service.ShardingPolicy.OFF, service=target))
    n = 0
    before = 0
    for _ in ds:
        n += 1
        if n == WARM:
            before = cpu() + used(dispatcher) + used(worker)
    spent = cpu() + used(dispatcher) + used(worker) - before
    for p in (worker, dispatcher):
        p.kill()
        p.wait()
    print(json.dumps({"bytes": (n - WARM) << 20, "cpu_seconds": spent, "version": tf.__version__}))


def main():
    what = sys.argv[1]
    if what not in ("dispatcher", "worker"):
        client(int(what))
        return
    from tensorflow.data.experimental import service
    if what == "dispatcher":
        s = service.DispatchServer(service.DispatcherConfig(port=0))
        serve(s, s.target)
    else:
        s = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[2].split("://")[-1]))
        serve(s, "ready")


main()
