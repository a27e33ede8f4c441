"""Reads a tide table on stdin and prints its highest, lowest and widest as JSON."""
import datetime
import decimal
import json
import re
import sys


class Broken(Exception):
    """The argument is the number of the line that breaks a rule."""


def date(text, number):
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise Broken(number)
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise Broken(number) from None


def clock(text, number):
    if not re.fullmatch(r"([01][0-9]|2[0-3]):[0-5][0-9]", text):
        raise Broken(number)
    return text


def metres(text, number, shape=r"-?[0-9]+\.[0-9]{1,2}"):
    if not re.fullmatch(shape, text):
        raise Broken(number)
    return decimal.Decimal(text)


def lines(text):
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split(";")[0].split()
        if words:
            yield number, words


def read(text):
    """Returns the harbour's name and a list of (day, [(time, kind, height)])."""
    rows = lines(text)
    end = len(text.splitlines()) + 1
    number, words = next(rows, (end, []))
    if len(words) < 2 or words[0] != "HARBOUR":
        raise Broken(number)
    harbour = " ".join(words[1:])
    number, words = next(rows, (end, []))
    if len(words) != 2 or words[0] != "ZERO":
        raise Broken(number)
    zero = metres(words[1], number, r"-?[0-9]+(\.[0-9]+)?")
    days, kind = [], None
    for number, words in rows:
        if words[0] == "DAY":
            if len(words) != 2 or days and len(days[-1][1]) < 2:
                raise Broken(number)
            day = date(words[1], number)
            if days and day <= days[-1][0]:
                raise Broken(number)
            days.append((day, []))
            continue
        if not days or len(words) != 3 or words[1] not in ("H", "L") or len(days[-1][1]) == 4:
            raise Broken(number)
        tides = days[-1][1]
        at = clock(words[0], number)
        if words[1] == kind or tides and at <= tides[-1][0]:
            raise Broken(number)
        kind = words[1]
        tides.append((at, kind, metres(words[2], number) + zero))
    if not days or len(days[-1][1]) < 2:
        raise Broken(end)
    return harbour, days


def exact(value):
    return str(value.quantize(decimal.Decimal("0.01"), rounding=decimal.ROUND_HALF_EVEN))


def report(text):
    harbour, days = read(text)
    tides = [("%sT%s" % (day, at), height) for day, rows in days for at, _, height in rows]
    top = max(tides, key=lambda t: t[1])
    bottom = min(tides, key=lambda t: t[1])
    have = {day for day, _ in days}
    one = datetime.timedelta(days=1)
    gaps, day = [], days[0][0]
    while day < days[-1][0]:
        if day not in have:
            gaps.append(str(day))
        day += one
    return {"harbour": harbour, "days": len(days), "highest": {"at": top[0], "height": exact(top[1])},
            "lowest": {"at": bottom[0], "height": exact(bottom[1])},
            "range": exact(max(abs(a[1] - b[1]) for a, b in zip(tides, tides[1:]))), "gaps": gaps}


if __name__ == "__main__":
    try:
        print(json.dumps(report(sys.stdin.read())))
    except Broken as broken:
        print(json.dumps({"error": "line %d" % broken.args[0]}))
        sys.exit(1)
