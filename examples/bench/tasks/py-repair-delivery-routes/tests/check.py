"""Hidden test of route.py; prints the score last.

The towns are small enough to try every walk, which the test does on its own.
"""
import itertools
import subprocess
import sys

TOWNS = {
    "Elmstead": ["bakery church 4", "church dairy 4", "bakery dairy 9", "dairy elm 0", "elm church 3 oneway", "elm fort 2", "church fort 7"],
    "Foxhole": ["a b 1 oneway", "b c 1 oneway", "c a 1 oneway", "c d 5", "d closed", "d e 1", "c e 9", "f g 3"],
    "Gorse": ["p q 2", "p r 2", "q s 2", "r s 2", "p s 4", "q r 0", "s t 1", "s t 3", "r closed"],
    "Hedge": ["m n 6", "n o 6 oneway", "o n 1 oneway", "o closed", "n k 2", "k m 3", "b10 b9 1", "b9 m 1", "b10 n 6"],
    "Ivy": ["x closed", "x y 3", "x z 4", "y z 10", "w w 2", "w y 0"],
}
BY_HAND = [
    ("Elmstead", "bakery fort", "10 bakery-church-dairy-elm-fort"),
    ("Foxhole", "a e", "11 a-b-c-e"),
    ("Gorse", "p t", "5 p-s-t"),
    ("Ivy", "x x", "0 x"),
    ("Ivy", "y z", "10 y-z"),
    ("Foxhole", "nowhere nowhere", "no way"),
]


def walk(town, start, goal):
    """Tries all walks without a place twice, then the rare ones that turn round."""
    roads, shut, places = {}, set(), set()
    for line in town:
        w = line.split()
        if w[1] == "closed":
            shut.add(w[0])
            continue
        places |= {w[0], w[1]}
        pairs = [(w[0], w[1])] if w[3:] else [(w[0], w[1]), (w[1], w[0])]
        for pair in pairs:
            roads[pair] = min(int(w[2]), roads.get(pair, 10 ** 9))
    if start not in places or goal not in places:
        return "no way"
    best, todo = None, [(0, 0, (start,))]
    while todo:
        minutes, streets, way = todo.pop()
        if best is not None and minutes > best[0]:
            continue
        if way[-1] == goal:
            best = min(filter(None, [best, (minutes, streets, way)]))
            continue
        if streets and way[-1] in shut or streets >= 8:
            continue
        for a, b in roads:
            if a == way[-1]:
                extra = 7 if streets and b == way[-2] else 0
                todo.append((minutes + roads[a, b] + extra, streets + 1, way + (b,)))
    return "%d %s" % (best[0], "-".join(best[2])) if best else "no way"


def drive(town, questions):
    page = "\n".join(town + ["---"] + questions) + "\n"
    return subprocess.run([sys.executable, "-B", "route.py"], input=page, capture_output=True, text=True, timeout=60).stdout.splitlines()


def main():
    complaints = 0
    for name, question, answer in BY_HAND:
        if drive(TOWNS[name], [question]) != [answer] or walk(TOWNS[name], *question.split()) != answer:
            print("in %s, %s: %s" % (name, question, drive(TOWNS[name], [question])))
            complaints += 1
    for name, town in TOWNS.items():
        places = sorted({w for line in town for w in line.split()[:2]} - {"closed"})
        questions = [" ".join(p) for p in itertools.product(places, repeat=2)]
        told = drive(town, questions)
        wanted = [walk(town, *q.split()) for q in questions]
        if told != wanted:
            complaints += 1
            print("the customers of %s complain: %s" % (name, [t for t in zip(questions, told, wanted) if t[1] != t[2]][:2]))
    if complaints == 0:
        print("in all five towns the parcels came by the cheapest way there is")
    return complaints


print(0 if main() else 1)
