"""Hidden test of notepad.py: plays scenes.txt and writes the reward file."""
import os
import pathlib
import subprocess
import sys

script = pathlib.Path(os.environ["CLEANRUN_TESTS"], "scenes.txt").read_text().splitlines()
typed = [line for line in script if line[:1] not in ("#", ">")]
printed = [line[2:] for line in script if line.startswith(">")]
play = subprocess.run([sys.executable, "-B", "notepad.py"], input="\n".join(typed), text=True, capture_output=True, timeout=30)
lines = play.stdout.splitlines()
passed = play.returncode == 0 and lines == printed
if passed:
    print("the baker undid and redid the shopping list without losing a line")
else:
    at = next((i for i, (a, b) in enumerate(zip(lines, printed)) if a != b), min(len(lines), len(printed)))
    print("output line %d differs from the script: %r" % (at + 1, lines[at:at + 1]))
pathlib.Path(os.environ["CLEANRUN_REWARD_DIR"], "reward.json").write_text('{"reward": %d}\n' % passed)
