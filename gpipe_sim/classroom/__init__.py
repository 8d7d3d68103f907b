"""The course around the lessons: copies for students, grades of what they hand in, a report on the class.

    handout.py    lessons and exercises without answers, numbers by seed
    handed_in.py  who handed in what, and which lines of it make an answer
    locked.py     what a student's process may not do
    inside.py     that process: it runs the student's lines, and answers calls with plain data
    plain.py      the plain data: what goes between the two processes
    outside.py    the process that knows what is right: it runs the lesson's check on what comes back
    guesses.py    predictions, read without running anything
    grade.py      all students, a row for each piece
    report.py     a page on what the class got wrong
    exam.py       questions of the self-test on paper, and their answers
    slides.py     the pictures that the lessons show, as files

A check is never told that the function that it tries is in another process: ``outside`` gives it one that
asks ``inside``. So what is handed in cannot reach the check, its sizes or its reply.
"""
