#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>

#include "registry/catalog.h"

namespace trainrun {

/// The logits of the token that comes next, [texts, V], as "0" after the request's `texts`, "1" after the first of its
/// `following` tokens (a list for each text) too, and so on, of the model of its `folder` or of its `recipe`;
/// `use_cache` as it says. Replies the layer that cannot go on, or null.
nlohmann::json next_logits(const Catalog& catalog, const nlohmann::json& request,
                           std::map<std::string, at::Tensor>& results);

/// The scores of `logits` [V] after the request's `text`, with its `options`, and the token that it chooses at `uniform`.
nlohmann::json next_scores(const nlohmann::json& request, const at::Tensor& logits,
                           std::map<std::string, at::Tensor>& results);

}  // namespace trainrun
