"""The names of the chapter; ``__init__.py`` imports a lesson's checks when they are first used."""

from gpipe_sim.course import lesson_01 as lesson_01
from gpipe_sim.course import lesson_02 as lesson_02
from gpipe_sim.course import lesson_03 as lesson_03
from gpipe_sim.course import lesson_04 as lesson_04
from gpipe_sim.course import lesson_05 as lesson_05
from gpipe_sim.course import lesson_06 as lesson_06
from gpipe_sim.course import lesson_07 as lesson_07
from gpipe_sim.course import lesson_08 as lesson_08
from gpipe_sim.course import lesson_09 as lesson_09
from gpipe_sim.course import lesson_10 as lesson_10
from gpipe_sim.course import lesson_11 as lesson_11
from gpipe_sim.course import lesson_12 as lesson_12
from gpipe_sim.course import lesson_13 as lesson_13
from gpipe_sim.course import lesson_14 as lesson_14
from gpipe_sim.course import lesson_15 as lesson_15
from gpipe_sim.course import lesson_16 as lesson_16
from gpipe_sim.course import lesson_17 as lesson_17
from gpipe_sim.course import lesson_18 as lesson_18
from gpipe_sim.course import lesson_19 as lesson_19
from gpipe_sim.course import lesson_20 as lesson_20
from gpipe_sim.course import lesson_A as lesson_A
from gpipe_sim.course import lesson_B as lesson_B
from gpipe_sim.course import mine as mine
from gpipe_sim.course.printed import wide as wide
from gpipe_sim.course.reply import Reply as Reply
from gpipe_sim.course.reveal import reveal as reveal
