"""The cheapest way of a van through a town."""
import heapq
import sys

ROUND = 7  # minutes for turning round


def read(lines):
    """Returns for each place the minutes to its neighbours, and the closed places."""
    streets, closed = {}, set()

    def add(a, b, minutes):
        to = streets.setdefault(a, {})
        to[b] = min(minutes, to.get(b, minutes))

    for line in lines:
        words = line.split()
        if words == ["---"]:
            break
        if len(words) == 2:
            closed.add(words[0])
            continue
        a, b, minutes = words[0], words[1], int(words[2])
        add(a, b, minutes)
        if words[3:] == ["oneway"]:
            streets.setdefault(b, {})
        else:
            add(b, a, minutes)
    return streets, closed


def cheapest(streets, closed, start, goal):
    # Where the van came from decides what the next street costs, so a state is
    # the last two places. Ways in the queue are ordered by cost, then number of
    # streets, then names: the first that reaches a state is the best for it.
    if start not in streets or goal not in streets:
        return None
    seen = set()
    queue = [(0, 0, (start,))]
    while queue:
        cost, length, way = heapq.heappop(queue)
        here = way[-1]
        if here == goal:
            return cost, way
        state = way[-2:]
        if state in seen or here in closed and length > 0:
            continue
        seen.add(state)
        for there, minutes in streets[here].items():
            if length > 0 and there == way[-2]:
                minutes += ROUND
            heapq.heappush(queue, (cost + minutes, length + 1, way + (there,)))
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
