"""Hidden test of knit.py."""
import subprocess
import sys

GARMENTS = {
    "shawl": (["kfb, k1, kfb", "k 5", "k1, (yo, k1) x 4", "p1, (p2), repeat to end"],
              ["kfb k kfb | 3 -> 5", "k k k k k | 5 -> 5", "k yo k yo k yo k yo k | 5 -> 9", "p p p p p p p p p | 9 -> 9"], 0),
    "sock": (["k12", "((k1,p1)x2, sl2) x2", "ssk, k8, k2tog", "repeat row 3"],
             [" ".join(["k"] * 12) + " | 12 -> 12", "k p k p sl sl k p k p sl sl | 12 -> 12",
              "ssk k k k k k k k k k2tog | 12 -> 10", "row 4: uses 12 of 10 stitches"], 1),
    "lace": (["k9", "k1, (yo, k2tog), repeat to end", "repeat row 2", "k3tog, (k3tog), repeat to end", "(kfb), repeat to end"],
             [" ".join(["k"] * 9) + " | 9 -> 9"] + ["k " + " ".join(["yo k2tog"] * 4) + " | 9 -> 9"] * 2 + ["k3tog k3tog k3tog | 9 -> 3", "kfb kfb kfb | 3 -> 6"], 0),
    "nothing left to repeat": (["k2", "k2, (p1), repeat to end"], ["k k | 2 -> 2", "k k | 2 -> 2"], 0),
    "odd": (["k6", "k1, (k2tog), repeat to end"], ["k k k k k k | 6 -> 6", "row 2: does not come out evenly"], 1),
    "too many": (["k1", "k2, (p1), repeat to end"], ["k | 1 -> 1", "row 2: does not come out evenly"], 1),
    "only air": (["k6", "k6, (yo), repeat to end"], ["k k k k k k | 6 -> 6", "row 2: does not come out evenly"], 1),
    "short": (["k6", "k5"], ["k k k k k k | 6 -> 6", "row 2: uses 5 of 6 stitches"], 1),
}
RIDDLES = ["", "k,", "(k1", "k1)", "(k1)", "(k1) x0", "(k1) x1000", "k0", "k1000", "yo2", "k2togs", "purl", "k1 p1", "()x2", "(k1) x2 x2",
           "(k1), repeat to end", "repeat row 1", "repeat row 0", "k1, repeat to end", "K1", "((k1), repeat to end) x2", "k01", "k1,,k1"]


def knit(rows):
    done = subprocess.run([sys.executable, "-B", "knit.py"], input="\n".join(rows) + "\n", capture_output=True, text=True, timeout=30)
    return done.stdout.splitlines(), done.returncode


def main():
    dropped = [name for name, (rows, lines, code) in GARMENTS.items() if knit(rows) != (lines, code)]
    dropped += ["riddle %r" % row for row in RIDDLES if knit([row]) != (["row 1: cannot read it"], 1)]
    later = knit(["k3", "k3", "repeat row 3"])
    if later[0][2:] != ["row 3: cannot read it"]:
        dropped.append("a row that repeats itself")
    for name in dropped:
        print("dropped stitches in:", name)
    if not dropped:
        print("grandmother found no dropped stitch in shawl, sock and lace")
    return len(dropped) > 0


sys.exit(main())
