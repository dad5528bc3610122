"""Programs that run inside a Ray cluster, under its own Python: text here, never imported.

`ELEMENTS` is the job of an array: a Ray task per element, none of them ever retried, as many at
once as a file says at that moment. `RANKS` starts the members of a gang, each in its bundle of a
placement group: on one node if they fit, else on as few as possible.
"""

ELEMENTS = r'''
import json, os, subprocess, sys, time
import ray

told = json.load(open(sys.argv[1]))

@ray.remote(max_retries=0)
def element(index):
    here = ray.get_runtime_context()
    env = dict(os.environ, TW_RAY_INDEX=str(index), RAY_ADDRESS=here.gcs_address)
    note = os.path.join(told["nodes"], "%d.of" % index) if told["nodes"] else ""
    if note:
        open(note, "w").write(here.get_node_id())
    try:
        return subprocess.call(["/bin/sh", told["script"]], env=env)
    finally:
        if note:
            os.unlink(note)

def width():
    try:
        return int(open(told["width"]).read())
    except (OSError, ValueError):
        return 1

ray.init(log_to_driver=False)
task = element.options(**told["options"])
left, running = list(told["indices"])[::-1], []
while left or running:
    if os.path.exists(told["cancelled"]):
        left.clear()
    while left and len(running) < width():
        running.append(task.remote(left.pop()))
    if not running:
        time.sleep(0.2)
        continue
    done, running = ray.wait(running, timeout=0.5)
    for each in done:
        try:
            ray.get(each)
        except ray.exceptions.RayError as problem:
            print("tradewind:", problem, file=sys.stderr)  # its mark, or that it has none, tells
'''

RANKS = r'''
import json, os, signal, subprocess, sys
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

told = json.load(open(sys.argv[1]))
command, count = sys.argv[2:], told["ranks"]
environment = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "CUDA_VISIBLE"))}

@ray.remote(max_restarts=0, max_concurrency=2)
class Rank:
    def where(self):
        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()

    def run(self, command, env):
        cards = os.environ.get("CUDA_VISIBLE_DEVICES")
        if cards is not None:
            env = dict(env, CUDA_VISIBLE_DEVICES=cards)
        self.child = subprocess.Popen(command, env=env, start_new_session=True)
        return self.child.wait()

    def signal(self, number):
        child = getattr(self, "child", None)
        if child is not None and child.poll() is None:
            os.killpg(child.pid, number)

ray.init(log_to_driver=False)
group = placement_group([told["bundle"]] * count, strategy="PACK")
ray.get(group.ready())
ranks = [
    Rank.options(
        num_cpus=told["bundle"].get("CPU", 0), num_gpus=told["bundle"].get("GPU", 0),
        scheduling_strategy=In(placement_group=group, placement_group_bundle_index=index),
    ).remote()
    for index in range(count)
]
places = ray.get([rank.where.remote() for rank in ranks])
note = os.path.join(told["nodes"], (os.environ.get("TW_TASK") or "0") + ".of")
open(note, "w").write(" ".join(node for node, _ in places))

def stop(number, _):
    for rank in ranks:
        rank.signal.remote(signal.SIGTERM)

signal.signal(signal.SIGTERM, stop)
head = places[0][1]
port = environment.get("MASTER_PORT", "29500")
waits = []
for index, rank in enumerate(ranks):
    before = [node for node, _ in places[:index]]
    env = dict(
        environment, TW_RANK=str(index), TW_LOCAL_RANK=str(before.count(places[index][0])),
        TW_CARDS_ARE_MINE="yes", MASTER_ADDR=head, TRADEWIND_HEAD_ADDRESS=head + ":" + port,
    )
    waits.append(rank.run.remote(command, env))
worst, left = 0, list(waits)
while left:
    done, left = ray.wait(left, timeout=1.0)
    for each in done:
        try:
            code = ray.get(each)
        except ray.exceptions.RayError as problem:
            print("tradewind:", problem, file=sys.stderr)
            code = 1
        if code and not worst:
            worst = code if code > 0 else 128 - code
            for rank in ranks:
                rank.signal.remote(signal.SIGKILL)
os.unlink(note)
sys.exit(worst)
'''
