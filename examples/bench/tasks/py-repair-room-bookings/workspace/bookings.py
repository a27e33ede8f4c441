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
import sys


class House:
    def __init__(self):
        self.bookings = []  # [number, room, start, end, who]

    def clash(self, room, start, end):
        for b in self.bookings:
            if b[1] == room and b[2] <= end and start <= b[3]:
                return b
        return None

    def book(self, room, start, end, who):
        b = self.clash(room, start, end)
        if b:
            return "taken by " + b[4]
        self.bookings.append([len(self.bookings) + 1, room, start, end, who])
        return "ok %d" % len(self.bookings)

    def cancel(self, number):
        for b in self.bookings:
            if b[0] == number:
                self.bookings.remove(b)
                return "ok"
        return "no booking %d" % number

    def move(self, number, start, end):
        for b in self.bookings:
            if b[0] == number:
                self.bookings.remove(b)
                clash = self.clash(b[1], start, end)
                if clash:
                    return "taken by " + clash[4]
                b[2], b[3] = start, end
                self.bookings.append(b)
                return "ok"
        return "no booking %d" % number

    def free(self, room):
        out, last = [], 0
        for b in self.bookings:
            if b[1] == room:
                out.append("%s-%s" % (show(last), show(b[2])))
                last = b[3]
        out.append("%s-%s" % (show(last), show(24 * 60)))
        return " ".join(out)

    def who(self, room, minute):
        for b in self.bookings:
            if b[1] == room and b[2] <= minute <= b[3]:
                return b[4]
        return "nobody"


def show(minutes):
    return "%02d:%02d" % (minutes // 60, minutes % 60)


def parse(text):
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def answer(house, line):
    words = line.split()
    try:
        if words[0] == "book":
            return house.book(words[1], parse(words[2]), parse(words[3]), words[4])
        if words[0] == "cancel":
            return house.cancel(int(words[1]))
        if words[0] == "move":
            return house.move(int(words[1]), parse(words[2]), parse(words[3]))
        if words[0] == "free":
            return house.free(words[1])
        if words[0] == "who":
            return house.who(words[1], parse(words[2]))
    except ValueError:
        return "bad time"
    return "what?"


if __name__ == "__main__":
    house = House()
    for line in sys.stdin:
        print(answer(house, line))
