#include "runner/distributed/agreement.h"

#include <ATen/ops/tensor.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <vector>

namespace trainrun {
namespace {

constexpr const char* kWhat = "the comparison of the ranks' recipes and data";
constexpr const char* kVersion = "trainrun " TRAINRUN_VERSION ", LibTorch " TORCH_VERSION;
constexpr size_t kMostNamed = 5;

/// Sections and keys in which ranks may differ: nothing that is computed depends on them.
constexpr std::array<std::string_view, 13> kMayDiffer = {"logging",
                                                         "name",
                                                         "output_dir",
                                                         "plugins",
                                                         "num_processes",
                                                         "machine_rank",
                                                         "main_process_ip",
                                                         "main_process_port",
                                                         "num_threads",
                                                         "dataloader.num_workers",
                                                         "distributed.pin_cores",
                                                         "checkpoint.keep_last",
                                                         "checkpoint.resume"};

/// FNV-1a, 64 bits.
class Digest {
 public:
  void add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * 1099511628211U;
  }
  void add(const std::string& text) { add(text.data(), text.size() + 1); }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 14695981039346656037U;
};

bool is_within(std::string_view path, std::string_view section) {
  if (!path.starts_with(section)) return false;
  return path.size() == section.size() || path[section.size()] == '.' || path[section.size()] == '[';
}

/// Machines may have the same files at different places; the data itself is compared once it is open.
bool is_place(std::string_view path, const std::string& text) {
  const bool names_files = is_within(path, "dataset") || is_within(path, "model.weights");
  return names_files && !is_within(path, "dataset.fold") && text.find('/') != std::string::npos;
}

/// As it is meant: 1e-3 and 0.001 are one number.
std::string meaning(const Value& value) {
  if (value.is_null()) return "null";
  if (value.is_list()) return "[]";
  if (value.is_map()) return "{}";
  const auto number = value.quoted() ? std::nullopt : parse_number(value.text());
  if (!number) return value.text();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.15g", *number);
  return text.data();
}

void collect(const Value& value, const std::string& path, Facts& facts) {
  const auto is_named = [&](std::string_view section) { return is_within(path, section); };
  if (std::any_of(kMayDiffer.begin(), kMayDiffer.end(), is_named) || path.ends_with("_timeout")) return;
  for (const Value::Entry& entry : value.entries()) {
    collect(entry.value, path.empty() ? entry.key : path + "." + entry.key, facts);
  }
  for (size_t i = 0; i < value.items().size(); ++i) {
    collect(value.items()[i], path + "[" + std::to_string(i) + "]", facts);
  }
  if (!value.entries().empty() || !value.items().empty()) return;
  if (value.is_scalar() && is_place(path, value.text())) return;
  facts[path] = meaning(value);
}

uint64_t digest_of(const Facts& facts) {
  Digest digest;
  for (const auto& [key, text] : facts) {
    digest.add(key);
    digest.add(text);
  }
  return digest.value();
}

std::string to_text(const Facts& facts) {
  std::string all;
  for (const auto& [key, text] : facts) all += key + '\0' + text + '\0';
  return all;
}

Facts facts_from(const std::string& all) {
  Facts facts;
  for (size_t begin = 0; begin < all.size();) {
    const std::string key = all.c_str() + begin;
    begin += key.size() + 1;
    const std::string text = all.c_str() + std::min(begin, all.size());
    begin += text.size() + 1;
    facts[key] = text;
  }
  return facts;
}

}  // namespace

Facts facts_of_recipe(const Value& resolved) {
  Facts facts;
  collect(resolved, "", facts);
  facts["program version"] = kVersion;
  return facts;
}

Facts facts_of_data(const Dataset& data, const std::string& name) {
  Facts facts;
  const int64_t size = data.size();
  facts[name + " (samples)"] = std::to_string(size);
  if (size == 0) return facts;
  const Batch batch = data.get(at::tensor({int64_t{0}, size / 2, size - 1}, at::kLong));
  Digest digest;
  std::string fields;
  for (const Batch::Field& field : batch.fields()) {
    const at::Tensor tensor = field.tensor.cpu().contiguous();
    fields += (fields.empty() ? "" : ", ") + field.name;
    for (const int64_t length : tensor.sizes()) digest.add(&length, sizeof length);
    digest.add(tensor.const_data_ptr(), tensor.nbytes());
  }
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest.value()));
  facts[name + " (fields)"] = fields;
  facts[name + " (digest of the first, the middle and the last sample)"] = text.data();
  return facts;
}

std::string difference(const Facts& own, const Facts& of_main, int64_t rank) {
  Facts all = own;
  all.insert(of_main.begin(), of_main.end());
  const auto of = [](const Facts& facts, const std::string& key) {
    const auto found = facts.find(key);
    return found == facts.end() ? "not set" : found->second;
  };
  std::string text;
  size_t count = 0;
  for (const auto& [key, value] : all) {
    const std::string here = of(own, key);
    const std::string there = of(of_main, key);
    if (here == there || ++count > kMostNamed) continue;
    text += (text.empty() ? "" : "; ") + ("rank " + std::to_string(rank)) + "'s " + key + " is " + here +
            ", rank 0's is " + there;
  }
  if (count > kMostNamed) text += "; and " + std::to_string(count - kMostNamed) + " more";
  return text;
}

void require_agreement(ProcessGroup& group, const Facts& facts) {
  const auto digest = static_cast<int64_t>(digest_of(facts));
  const at::Tensor digests = group.gather_rows(at::tensor({digest}, at::kLong), kWhat);
  if (digests.eq(digests[0]).all().item<bool>()) return;
  const Facts of_main = facts_from(group.share_text(to_text(facts), kWhat));
  std::string text;
  for (const std::string& found : group.gather_texts(difference(facts, of_main, group.rank()), kWhat)) {
    if (!found.empty()) text += (text.empty() ? "" : "; ") + found;
  }
  throw Error("the ranks do not do the same job: " + text);
}

}  // namespace trainrun
