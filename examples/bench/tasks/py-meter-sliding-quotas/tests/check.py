"""Hidden test of meter.py: the customers of shop.txt, one after another."""
import json
import os
import subprocess
import sys


def customers():
    with open(os.path.join(os.environ["CLEANRUN_TESTS"], "shop.txt"), encoding="utf-8") as shop:
        for row in shop:
            asks, _, hears = row.partition("=>")
            yield asks.strip(), json.loads(hears)


def unhappy():
    visits = list(customers())
    counter = subprocess.Popen([sys.executable, "-B", "meter.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    spoken, _ = counter.communicate("".join(asks + "\n" for asks, _ in visits).encode(), timeout=30)
    replies = spoken.decode("utf-8", "replace").splitlines()
    if len(replies) != len(visits):
        return "%d replies to %d customers" % (len(replies), len(visits))
    for (asks, hears), reply in zip(visits, replies):
        try:
            same = json.loads(reply) == hears and list(json.loads(reply)) == list(hears)
            if same and "report" in hears:
                same = list(json.loads(reply)["report"]) == list(hears["report"])
        except ValueError:
            same = False
        if not same:
            return "%s was answered by %s" % (asks, reply)
    return None


complaint = unhappy()
print(complaint or "the print shop served every customer within the quota of the hour")
with open(os.path.join(os.environ["CLEANRUN_REWARD_DIR"], "reward.txt"), "w") as reward:
    reward.write("0.0\n" if complaint else "1.0\n")
