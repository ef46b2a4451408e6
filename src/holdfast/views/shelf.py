"""stub"""
class ViewShelf:
    def __init__(self, layout, run_layout): pass
    def write(self, picture, graph, *, sync): pass
