#pragma once

#include "registry/kinds/communicator.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// Forgets the gradients; a parameter that gets none in the next backward pass then has none.
void reset_gradients(const Tensors& parameters);

/// The gradients there are.
Tensors gradients_of(const Tensors& parameters);

/// Rescales gradients in place so that their total 2-norm is at most `max_norm`; returns the norm before, a scalar on
/// the gradients' device. Source: Pascanu et al. 2013, "On the difficulty of training RNNs"; semantics of torch.nn.utils.clip_grad_norm_.
/// `shards`: where each rank has pieces of the gradients only, those that know the others; every rank calls it.
at::Tensor clip_gradients(const Tensors& parameters, double max_norm, Communicator* shards = nullptr);

/// Brings each element of the gradients into [-max_value, max_value], in place; semantics of
/// torch.nn.utils.clip_grad_value_. The ranks need not talk.
void clip_gradient_values(const Tensors& parameters, double max_value);

}  // namespace trainrun
