"""Hidden test of tides.py. The last line printed is the score."""
import json
import subprocess
import sys

WHOLE = """HARBOUR  Kettle   Sound ; north side
ZERO -0.15

DAY 2024-02-27
03:10 L -0.3   ; spring
09:20 H 5.25
15:31 L 0.10
21:44 H 5.40
DAY 2024-02-28
03:58 L -0.30
10:07 H 5.40
DAY 2024-03-02
00:01 L 0.05
06:30 H 4.9
12:40 L 0.55
"""
ANSWER = {"harbour": "Kettle Sound", "days": 3, "highest": {"at": "2024-02-27T21:44", "height": "5.25"},
          "lowest": {"at": "2024-02-27T03:10", "height": "-0.45"}, "range": "5.70", "gaps": ["2024-02-29", "2024-03-01"]}
SPOILED = [
    ("HARBOUR  Kettle   Sound ; north side", "HARBOUR ; nameless", 1),
    ("ZERO -0.15", "ZERO", 2),
    ("ZERO -0.15", "ZERO +1", 2),
    ("DAY 2024-02-28", "DAY 2024-02-27", 9),
    ("DAY 2024-02-28", "DAY 2023-02-29", 9),
    ("DAY 2024-03-02", "DAY 2024-3-2", 12),
    ("10:07 H 5.40", "10:07 L 5.40", 11),
    ("10:07 H 5.40", "", 12),
    ("00:01 L 0.05", "00:01 H 0.05", 13),
    ("00:01 L 0.05", "DAY 2024-03-03", 13),
    ("06:30 H 4.9", "00:01 H 4.9", 14),
    ("06:30 H 4.9", "06:30 H 5", 14),
    ("06:30 H 4.9", "06:30 H 4.905", 14),
    ("06:30 H 4.9", "24:30 H 4.9", 14),
    ("06:30 H 4.9", "06:30 HL 4.9", 14),
    ("12:40 L 0.55", "DAY 2024-03-04", 16),
    ("21:44 H 5.40", "21:44 H 5.40\n23:59 L 0.10", 9),
    (WHOLE, "HARBOUR Nowhere\nZERO 1\n", 3),
    (WHOLE, "", 1),
]


def ask(table):
    done = subprocess.run([sys.executable, "-B", "tides.py"], input=table, capture_output=True, text=True, timeout=30)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, done.stdout + done.stderr[-200:]


def wrong():
    if ask(WHOLE) != (0, ANSWER):
        yield "the table of Kettle Sound: %s" % (ask(WHOLE),)
        return
    small = ask("HARBOUR x\nZERO 0.105\nDAY 2023-12-31\n23:00 H 0.10\n23:59 L 0.1")
    if small[0] != 0 or small[1]["highest"] != {"at": "2023-12-31T23:00", "height": small[1]["lowest"]["height"]} or small[1]["range"] != "0.00":
        yield "two tides of one height: %s" % (small,)
    for old, new, line in SPOILED:
        got = ask(WHOLE.replace(old, new, 1))
        if got != (1, {"error": "line %d" % line}):
            yield "%r for %r gave %s" % (new, old, got)


faults = list(wrong())
for fault in faults:
    print(fault)
if not faults:
    print("the pilots of Kettle Sound trust this tide table again")
print(0 if faults else 1)
