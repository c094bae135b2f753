#include "runner/model/pretrained_weights.h"

#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "registry/tensors/files/pretrained_folder.h"
#include "runner/model/model_adapters.h"
#include "runner/model/model_records.h"
#include "runner/model/shared_weights.h"

namespace trainrun {
namespace {

/// Under which name the families' models with a head keep the model without one.
constexpr std::array<std::string_view, 6> kPrefixes = {"bert.",        "roberta.", "distilbert.",
                                                       "transformer.", "model.",   "module."};

/// What transformers once saved and now leaves out when it loads.
bool is_old_buffer(std::string_view name) {
  return name.ends_with("embeddings.position_ids") || name.ends_with("embeddings.token_type_ids") ||
         name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

/// "LayerNorm.gamma" as it is called today.
std::string modern(const std::string& name) {
  for (const auto& [old, now] : {std::pair<std::string_view, const char*>(".gamma", ".weight"), {".beta", ".bias"}}) {
    if (name.ends_with(old)) return name.substr(0, name.size() - old.size()) + now;
  }
  return name;
}

/// `name` with a prefix put before it or taken away, if the model then knows it; else as it is.
struct Mapping {
  std::string_view prefix;
  bool adds = false;

  std::string of(const std::string& name, const std::set<std::string>& known) const {
    if (known.contains(name) || prefix.empty()) return name;
    std::string other = name;
    if (adds) {
      other.insert(0, prefix);
    } else if (name.starts_with(prefix)) {
      other.erase(0, prefix.size());
    }
    return known.contains(other) ? other : name;
  }
};

/// A head over the vocabulary has one bias, which some files call decoder.bias, or have under both names.
void join_biases(NamedTensors& tensors, const std::set<std::string>& known) {
  for (const std::string head : {"cls.predictions.", "lm_head."}) {
    const std::string name = head + "bias";
    const std::string other = head + "decoder.bias";
    const auto find = [&](const std::string& wanted) {
      return std::ranges::find_if(tensors, [&](const auto& item) { return item.first == wanted; });
    };
    const auto alias = find(other);
    if (alias == tensors.end() || known.contains(other) || !known.contains(name)) continue;
    if (const auto own = find(name); own == tensors.end()) {
      alias->first = name;
    } else if (own->second.sizes() == alias->second.sizes() && at::equal(own->second, alias->second)) {
      tensors.erase(alias);
    }
  }
}

/// Those of `state` below `prefix`, without it.
NamedTensors below(const std::string& prefix, const NamedTensors& state) {
  NamedTensors own;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(prefix)) own.emplace_back(name.substr(prefix.size()), tensor);
  }
  return own;
}

/// Throws Error where the folder has integers, or numbers of 8 bits, for weights: those of a quantized model, which are
/// worth nothing without its scales.
void check_types(const std::string& folder, const std::map<std::string, at::Tensor>& given, const NamedTensors& own) {
  for (const auto& [name, tensor] : own) {
    const auto it = given.find(name);
    if (it == given.end() || !at::isFloatingType(tensor.scalar_type())) continue;
    const at::ScalarType type = it->second.scalar_type();
    if (at::isFloatingType(type) && c10::elementSize(type) > 1) continue;
    throw Error(folder + ": " + name + " is of " + at::toString(type) +
                ", as in a quantized model; name a folder with the weights in float16, bfloat16 or float32");
  }
}

/// Whether `from` has all of `to` but for rows of a vocabulary that has grown from `rows`.
bool lacks_new_rows(const at::Tensor& from, const at::Tensor& to, std::optional<int64_t> rows) {
  return rows && from.dim() > 0 && from.dim() == to.dim() && from.size(0) == *rows && to.size(0) > *rows &&
         from.sizes().slice(1) == to.sizes().slice(1);
}

/// The new rows are the mean of the old ones, around which transformers' resize_token_embeddings draws them with a
/// deviation of some 3e-5 of theirs; the bias of a head that shares the embedding's weight begins at 0, as there.
void copy_with_new_rows(const at::Tensor& from, const at::Tensor& to, bool is_tied) {
  const int64_t rows = from.size(0);
  to.narrow(0, 0, rows).copy_(from);
  const at::Tensor more = to.narrow(0, rows, to.size(0) - rows);
  if (from.dim() == 1 && is_tied) {
    more.zero_();
  } else {
    more.copy_(from.to(at::kFloat).mean(0, /*keepdim=*/true).expand_as(more));
  }
}

/// Copies the folder's tensors into `own`; what had no counterpart, or "". `needs_all`: none of `own` may be left out.
std::string load_folder(const ModelRecord& record, const NamedTensors& own, bool needs_all) {
  const std::string& folder = record.pretrained;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : own) names.push_back(name);
  const NamedTensors read = with_names_of(read_pretrained_folder(folder), names);
  const std::map<std::string, at::Tensor> given(read.begin(), read.end());
  check_types(folder, given, own);
  check_shared_weights(folder, given, own);
  std::set<const at::TensorImpl*> loaded;  // a tensor that layers share needs one of its names only
  std::vector<std::string> others;         // of another shape
  const c10::AutoGradMode no_gradients(false);
  for (const auto& [name, tensor] : own) {
    const auto it = given.find(name);
    if (it == given.end()) continue;
    loaded.insert(tensor.unsafeGetTensorImpl());
    if (it->second.sizes() == tensor.sizes()) {
      at::Tensor(tensor).copy_(it->second);
    } else if (lacks_new_rows(it->second, tensor, record.grown_from)) {
      copy_with_new_rows(it->second, tensor, record.config.value("tie_word_embeddings", true));
    } else {
      others.push_back(name + " is " + at::str(it->second.sizes()) + ", the model's is " + at::str(tensor.sizes()));
    }
  }
  if (!others.empty()) {
    throw Error(folder + " does not fit the model: " + join(others, "; ") +
                "; is a size, or num_labels, another than in its config.json?");
  }
  std::vector<std::string> fresh;
  for (const auto& [name, tensor] : own) {
    if (!loaded.contains(tensor.unsafeGetTensorImpl())) fresh.push_back(name);
  }
  if (loaded.empty()) throw Error(folder + " has no tensor of the model, whose first is called " + names.at(0));
  if (needs_all && !fresh.empty()) throw Error(folder + " has no weights for " + join(fresh) + " of the model");
  std::vector<std::string> unused;
  for (const auto& [name, tensor] : read) {
    if (std::find(names.begin(), names.end(), name) == names.end()) unused.push_back(name);
  }
  std::vector<std::string> notes;
  if (!fresh.empty())
    notes.push_back("it has no weights for " + join(fresh) + ", which start from their initial values");
  if (!unused.empty()) notes.push_back("the model has no place for its " + join(unused));
  return notes.empty() ? "" : folder + ": " + join(notes, "; ");
}

std::vector<std::string> load_folders(const Graph& graph, const NamedTensors& state, bool needs_all) {
  std::vector<std::string> notes;
  for (const FoundRecord& found : find_records(graph)) {
    if (found.record->pretrained.empty()) continue;
    const std::string note = load_folder(*found.record, below(found.prefix, state), needs_all);
    if (!note.empty()) notes.push_back(note);
  }
  return notes;
}

}  // namespace

NamedTensors with_names_of(const NamedTensors& tensors, const std::vector<std::string>& names) {
  const std::set<std::string> known(names.begin(), names.end());
  NamedTensors kept;
  for (const auto& [name, tensor] : tensors) {
    if (known.contains(name) || !is_old_buffer(name))
      kept.emplace_back(known.contains(name) ? name : modern(name), tensor);
  }
  const auto count_known = [&](const Mapping& mapping) {
    return std::count_if(kept.begin(), kept.end(),
                         [&](const auto& item) { return known.contains(mapping.of(item.first, known)); });
  };
  Mapping best;
  auto most = count_known(best);
  for (const std::string_view prefix : kPrefixes) {
    for (const bool adds : {true, false}) {
      const Mapping mapping = {prefix, adds};
      const auto count = count_known(mapping);
      if (count <= most) continue;
      best = mapping;
      most = count;
    }
  }
  join_biases(kept, known);
  std::set<std::string> taken;
  for (auto& [name, tensor] : kept) taken.insert(name);
  for (auto& [name, tensor] : kept) {
    const std::string other = best.of(name, known);
    if (other != name && taken.insert(other).second) name = other;
  }
  return kept;
}

std::vector<std::string> load_pretrained(Model& model) {
  NamedTensors state = model.state_dict();
  if (model.adapters()) state = model.adapters()->base_of(state);
  return load_folders(model.graph(), state, /*needs_all=*/false);
}

std::vector<std::string> pretrained_notes(const Graph& graph) {
  std::vector<std::string> notes;
  for (const FoundRecord& found : find_records(graph)) {
    for (const std::string& note : found.record->notes) {
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    }
  }
  return notes;
}

std::vector<std::string> grown_vocabularies(const Graph& graph) {
  std::vector<std::string> lines;
  for (const FoundRecord& found : find_records(graph)) {
    const ModelRecord& record = *found.record;
    if (!record.grown_from || record.pretrained.empty()) continue;
    lines.push_back(record.pretrained + ": resized embeddings from " + std::to_string(*record.grown_from) + " to " +
                    record.config.at("vocab_size").dump() + " rows: the new ones are the mean of the old ones");
  }
  return lines;
}

std::vector<std::string> load_all_pretrained(const Graph& graph) {
  NamedTensors state;
  for (const auto& item : graph.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : graph.named_buffers()) state.emplace_back(item.key(), item.value());
  return load_folders(graph, state, /*needs_all=*/true);
}

}  // namespace trainrun
