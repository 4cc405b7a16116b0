"""The Hessian and the loss around trained weights, shared by several analyses."""
