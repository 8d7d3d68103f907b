def to_svg(t): return ""
