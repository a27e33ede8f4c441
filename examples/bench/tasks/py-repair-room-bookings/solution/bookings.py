"""Bookings of rooms. Commands on stdin, one a line; times are minutes, HH:MM.

book ROOM FROM TO WHO   "ok N" with the number of the booking (1, 2, ...), or "taken by WHO" with whoever
                        has the earliest booking that overlaps, or "bad time". The end of one booking may
                        be the start of the next. TO may be 24:00, and must be after FROM.
cancel N                "ok", or "no booking N". Numbers are never given again.
move N FROM TO          like book, but "ok"; the booking's own old time does not stand in its way. If it
                        cannot be moved, it stays as it was.
free ROOM               the free times of the day, "HH:MM-HH:MM" divided by blanks, or "none"
who ROOM HH:MM          who has the room at that minute, or "nobody"
anything else           "what?"
"""
import re
import sys

DAY = 24 * 60
SHAPES = {"book": "wttw", "cancel": "n", "move": "ntt", "free": "w", "who": "wt"}


class House:
    def __init__(self):
        self.bookings = {}  # number: (room, start, end, who)
        self.given = 0

    def of(self, room):
        """All bookings of a room by time, each (start, end, who, number)."""
        return sorted((b[1], b[2], b[3], n) for n, b in self.bookings.items() if b[0] == room)

    def clash(self, room, start, end, without=None):
        for begin, finish, who, number in self.of(room):
            if number != without and begin < end and start < finish:
                return "taken by " + who
        return None

    def book(self, room, start, end, who):
        if end <= start:
            return "bad time"
        refusal = self.clash(room, start, end)
        if refusal:
            return refusal
        self.given += 1
        self.bookings[self.given] = (room, start, end, who)
        return "ok %d" % self.given

    def cancel(self, number):
        if self.bookings.pop(number, None) is None:
            return "no booking %d" % number
        return "ok"

    def move(self, number, start, end):
        if number not in self.bookings:
            return "no booking %d" % number
        if end <= start:
            return "bad time"
        room, _, _, who = self.bookings[number]
        refusal = self.clash(room, start, end, without=number)
        if refusal:
            return refusal
        self.bookings[number] = (room, start, end, who)
        return "ok"

    def free(self, room):
        gaps, last = [], 0
        for start, end, _, _ in self.of(room) + [(DAY, DAY, "", 0)]:
            if start > last:
                gaps.append("%s-%s" % (show(last), show(start)))
            last = end
        return " ".join(gaps) or "none"

    def who(self, room, minute):
        for start, end, who, _ in self.of(room):
            if start <= minute < end:
                return who
        return "nobody"


def show(minutes):
    return "%02d:%02d" % divmod(minutes, 60)


def parse(text):
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00", text):
        raise ValueError(text)
    return int(text[:2]) * 60 + int(text[3:])


def answer(house, line):
    verb, *rest = line.split() or [""]
    shape = SHAPES.get(verb, "?")
    if len(rest) != len(shape) or any(s == "n" and not re.fullmatch("[0-9]{1,9}", w) for s, w in zip(shape, rest)):
        return "what?"
    if shape == "?":
        return "what?"
    try:
        values = [parse(w) if s == "t" else int(w) if s == "n" else w for s, w in zip(shape, rest)]
    except ValueError:
        return "bad time"
    return getattr(house, verb)(*values)


if __name__ == "__main__":
    house = House()
    for line in sys.stdin:
        print(answer(house, line))
