# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""kill -9 at random times under load: the dispatcher comes back with all that it acknowledged."""
import json
import os
import random
import time

import kit
from kit import result

seed, long = int(os.environ.get("MR_TEST_SEED", "1")), os.environ.get("MR_TEST_TIER") == "long"
random.seed(seed)
rounds = 60 if long else 12
jobs, streams = 5, 16
acknowledged, moved, restarts = {}, 0, []


def counted(d):
    return sum(j["elements"] for j in kit.ask(d.at, "jobs"))


for r in range(rounds):
    begin = time.monotonic()
    d = kit.Dispatcher("--state", "state", name=f"round{r}")
    restarts.append(time.monotonic() - begin)
    # Nothing that was acknowledged is lost.
    lost = []
    for job, elements in acknowledged.items():
        there = [s["acknowledged"] for s in kit.ask(d.at, "streams", job) or []]
        if len(there) != len(elements) or any(a < b for a, b in zip(there, elements)):
            lost.append((job, elements, there))
    result(f"nothing_acknowledged_is_lost in round {r}, seed {seed}", not lost, f"{lost}\n{d.log()}")
    load = kit.load(d.at, jobs=jobs, streams=streams, workers=3, every=random.choice((0, 1, 5)),
                    step=random.randrange(1, 50))
    if r % 2:  # every other time at once, or before anything has happened
        begun = counted(d)
        kit.until(lambda: counted(d) > begun + 10000)
    time.sleep(random.expovariate(1 / 0.4))
    d.stop(how=9)
    text = load.communicate(timeout=kit.PATIENCE)[0]
    for job, elements in json.loads(text or "{}").items():
        if elements:
            moved += sum(elements) > sum(acknowledged.get(job, []))
            acknowledged[job] = elements
result("jobs_moved_on", moved >= rounds // 2, f"{moved} times in {rounds} rounds")
# The last state can be read to its end in good order too.
d = kit.Dispatcher("--state", "state", name="last")
result("all_jobs_are_there", {j["job"] for j in kit.ask(d.at, "jobs")} == set(acknowledged) and len(acknowledged) == jobs)
result("it_ends_well", d.stop() == 0, d.log())
print(f"{rounds} kills, {moved} jobs moved on, {max(restarts):.2f} s until it served at most")
kit.end()
