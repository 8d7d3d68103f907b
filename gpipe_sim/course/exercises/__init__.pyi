"""The exercises, each a module; ``__init__.py`` imports one when it is first used."""

from gpipe_sim.course.exercises import boxes as boxes
from gpipe_sim.course.exercises import breadth as breadth
from gpipe_sim.course.exercises import calls as calls
from gpipe_sim.course.exercises import choose as choose
from gpipe_sim.course.exercises import complete as complete
from gpipe_sim.course.exercises import forget as forget
from gpipe_sim.course.exercises import gaps as gaps
from gpipe_sim.course.exercises import gate as gate
from gpipe_sim.course.exercises import head as head
from gpipe_sim.course.exercises import hop as hop
from gpipe_sim.course.exercises import late as late
from gpipe_sim.course.exercises import path as path
from gpipe_sim.course.exercises import repair as repair
from gpipe_sim.course.exercises import staircase as staircase
from gpipe_sim.course.exercises import zero as zero
