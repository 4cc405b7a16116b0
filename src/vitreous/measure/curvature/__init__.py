"""The Hessian and the loss around trained weights: what several analyses share."""
