#pragma once

#include "registry/layer.h"

namespace trainrun {

/// Forgets the gradients; a parameter that gets none in the next backward pass then has none.
void reset_gradients(const Tensors& parameters);

/// The gradients there are.
Tensors gradients_of(const Tensors& parameters);

/// Rescales gradients in place so that their total 2-norm is at most `max_norm`; returns the norm before. Source:
/// Pascanu et al. 2013, "On the difficulty of training RNNs"; semantics of torch.nn.utils.clip_grad_norm_.
double clip_gradients(const Tensors& parameters, double max_norm);

}  // namespace trainrun
