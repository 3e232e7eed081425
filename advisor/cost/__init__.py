"""From predictions and offers to priced, ranked quotes."""
