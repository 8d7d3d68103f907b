"""When things happen: costs, the two clocks, timelines, what is wrong with an order, and what is measured."""
