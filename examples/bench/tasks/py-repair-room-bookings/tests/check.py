"""Hidden test of bookings.py: a day in the house, told as a conversation."""
import subprocess
import sys

DAY_IN_THE_HOUSE = """
book attic 09:00 10:30 choir            | ok 1
book attic 10:30 11:00 chess            | ok 2
book attic 10:00 10:45 judo             | taken by choir
book attic 08:00 09:00 yoga             | ok 3
book cellar 08:00 09:00 drummers        | ok 4
who attic 10:30                         | chess
who attic 11:00                         | nobody
who attic 08:59                         | yoga
free attic                              | 00:00-08:00 11:00-24:00
cancel 2                                | ok
cancel 2                                | no booking 2
book attic 23:15 24:00 stargazers       | ok 5
book attic 12:00 12:00 nobody           | bad time
book attic 13:00 12:00 nobody           | bad time
book attic 24:10 24:20 ghosts           | bad time
book attic 9:00 10:00 early             | bad time
book attic 11:60 12:10 late             | bad time
move 1 09:15 10:45                      | ok
move 1 08:30 09:30                      | taken by yoga
who attic 10:44                         | choir
move 1 10:45 10:45                      | bad time
move 2 10:00 11:00                      | no booking 2
free attic                              | 00:00-08:00 09:00-09:15 10:45-23:15
book hall 00:00 24:00 flea-market       | ok 6
free hall                               | none
who hall 23:59                          | flea-market
free garden                             | 00:00-24:00
book attic 07:00 23:30 congress         | taken by yoga
cancel 3                                | ok
book attic 07:00 23:30 congress         | taken by choir
move 5 09:00 09:15                      | ok
book attic 07:00 23:30 congress         | taken by stargazers
cancel nine                             | what?
cancel                                  | what?
open attic                              | what?
book attic 12:00                        | what?
free attic cellar                       | what?
move 5 23:00 24:00                      | ok
who attic 24:00                         | nobody
cancel 77                               | no booking 77
"""


def main():
    turns = [line.split("|") for line in DAY_IN_THE_HOUSE.strip().splitlines()]
    said = subprocess.run([sys.executable, "-B", "bookings.py"], input="\n".join(t[0].strip() for t in turns) + "\n\n",
                          capture_output=True, text=True, timeout=30)
    heard = said.stdout.splitlines()
    expected = [t[1].strip() for t in turns] + ["what?"]
    for i, want in enumerate(expected):
        got = heard[i] if i < len(heard) else "(silence)"
        if got != want:
            print("turn %d: the caretaker said %r instead of %r" % (i + 1, got, want))
            return 1
    if said.returncode != 0 or len(heard) != len(expected):
        print("the caretaker did not know when to stop")
        return 1
    print("the caretaker answered every question of the day correctly")
    return 0


sys.exit(main())
