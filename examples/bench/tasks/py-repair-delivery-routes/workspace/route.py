"""The cheapest way of a van through a town."""
import heapq
import sys


def read(lines):
    streets, closed = {}, set()
    for line in lines:
        words = line.split()
        if words == ["---"]:
            break
        if words[1] == "closed":
            closed.add(words[0])
            continue
        a, b, minutes = words[:3]
        streets.setdefault(a, []).append((b, int(minutes)))
        streets.setdefault(b, []).append((a, int(minutes)))
    return streets, closed


def cheapest(streets, closed, start, goal):
    seen = set()
    queue = [(0, [start])]
    while queue:
        cost, way = heapq.heappop(queue)
        here = way[-1]
        if here == goal:
            return cost, way
        if here in seen or here in closed:
            continue
        seen.add(here)
        for there, minutes in streets.get(here, []):
            if len(way) > 1 and there == way[-2]:
                minutes += 7
            heapq.heappush(queue, (cost + minutes, way + [there]))
    return None


def main():
    lines = iter(sys.stdin)
    streets, closed = read(lines)
    for line in lines:
        start, goal = line.split()
        found = cheapest(streets, closed, start, goal)
        print("%d %s" % (found[0], "-".join(found[1])) if found else "no way")


if __name__ == "__main__":
    main()
