"""The command: ``python -m gpipe_sim``, or ``gpipe-sim`` where the package is installed.

    gpipe-sim draw 1F1B 4 8           a schedule as a grid of text with its numbers, or as a chart
    gpipe-sim check order.txt         whether an order can run, and if not, why
    gpipe-sim plan --model gpt ...    the fastest plans for a model on a cluster
    gpipe-sim lessons my-lessons      the lessons, copied into a folder
    gpipe-sim course handout DIR      for who teaches: handouts, grades, a report

Each has ``--help`` with examples. It adds nothing to what the package can do: a subcommand is one short file
that reads its arguments, calls the library and says what came out.

The exit status is the answer, for scripts: 0 is yes, or done; 1 is no, as of an order that deadlocks, or a
model that fits nowhere; 2 says that the question was wrong, as of a file that cannot be read. Answers go to
stdout, also when they are no. What is wrong with a question goes to stderr, in one sentence.

It plugs into nothing, and nothing builds on it.
"""
