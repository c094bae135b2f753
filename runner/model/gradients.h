#pragma once

#include "registry/kinds/communicator.h"
#include "registry/kinds/layer.h"

namespace trainrun {

/// Forgets the gradients; a parameter that gets none in the next backward pass then has none.
void reset_gradients(const Tensors& parameters);

/// The gradients there are.
Tensors gradients_of(const Tensors& parameters);

/// The 2-norm of all gradients together, a scalar on their device. `shards`: where each rank has only pieces of the
/// gradients, those that know the others; every rank calls it.
at::Tensor gradient_norm(const Tensors& parameters, Communicator* shards = nullptr);
/// What gradients of this norm are multiplied by so that it is at most `max_norm`. Source: Pascanu et al. 2013, "On the
/// difficulty of training RNNs"; semantics of torch.nn.utils.clip_grad_norm_.
at::Tensor clip_factor(const at::Tensor& norm, double max_norm);
/// Multiplies the gradients by a scalar on their device, in place.
void multiply_gradients(const Tensors& parameters, const at::Tensor& factor);

/// Brings each element of the gradients into [-max_value, max_value], in place; semantics of
/// torch.nn.utils.clip_grad_value_. The ranks need not talk.
void clip_gradient_values(const Tensors& parameters, double max_value);

}  // namespace trainrun
