#include "runner/data/data_fingerprint.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <sys/stat.h>

#include <algorithm>

#include "registry/formats/files/digest.h"

namespace trainrun {
namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{256} << 20;  // that are digested: a fraction of a second
constexpr int64_t kPieceBytes = int64_t{4} << 20;   // read at a time
constexpr int64_t kMostPiece = 4096;                // samples

int64_t bytes_of(const Batch& batch) {
  int64_t bytes = 0;
  for (const Batch::Field& field : batch.fields()) bytes += static_cast<int64_t>(field.tensor.nbytes());
  return bytes;
}

void add(Sha256& hash, const Batch& batch) {
  for (const Batch::Field& field : batch.fields()) {
    const at::Tensor tensor = field.tensor.contiguous();
    const json header = {field.name, c10::toString(tensor.scalar_type()), tensor.sizes().vec()};
    const std::string text = header.dump();
    hash.update(text.data(), text.size());
    hash.update(tensor.const_data_ptr(), tensor.nbytes());
  }
}

/// Whether samples are the same each time they are asked for; a plugin's may be drawn anew.
bool is_repeatable(const Dataset& data) {
  const at::Tensor first = at::arange(1, at::kLong);
  Sha256 one;
  Sha256 other;
  add(one, data.get(first));
  add(other, data.get(first));
  return one.finish() == other.finish();
}

/// Sizes and times of the regular files that a part of the recipe names, by the path of the parameter.
void add_files(const Value& written, const std::string& path, json& files) {
  for (size_t i = 0; i < written.items().size(); ++i) {
    add_files(written.items()[i], path + "[" + std::to_string(i) + "]", files);
  }
  for (const Value::Entry& entry : written.entries()) {
    add_files(entry.value, path.empty() ? entry.key : path + "." + entry.key, files);
  }
  struct stat status{};
  const bool is_file = written.is_scalar() && !written.text().empty() && ::stat(written.text().c_str(), &status) == 0 &&
                       S_ISREG(status.st_mode);
  if (!is_file) return;
  constexpr int64_t kNanoseconds = 1'000'000'000;
  files[path] = {{"bytes", static_cast<int64_t>(status.st_size)},
                 {"modified", status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec}};
}

}  // namespace

json fingerprint_of(const Dataset& data, const Component<DatasetKind>& component) {
  const int64_t size = data.size();
  json files = json::object();
  add_files(component.written, "", files);
  Sha256 hash;
  int64_t digested = 0;
  if (size > 0 && is_repeatable(data)) {
    const int64_t each = std::max<int64_t>(bytes_of(data.get(at::arange(1, at::kLong))), 1);
    digested = std::clamp<int64_t>(kMostBytes / each, 1, size);
    const int64_t piece = std::clamp<int64_t>(kPieceBytes / each, 1, kMostPiece);
    const int64_t stride = size / digested;
    for (int64_t begin = 0; begin < digested; begin += piece) {
      const int64_t end = std::min(begin + piece, digested);
      add(hash, data.get(at::arange(begin, end, at::kLong) * stride));
    }
  }
  return {{"samples", size}, {"digest", hash.finish()}, {"digested", digested}, {"files", files}};
}

DataDifference compare_fingerprints(const json& saved, const json& now) {
  const auto number = [](const json& fingerprint, const char* key) { return fingerprint.at(key).get<int64_t>(); };
  const int64_t before = number(saved, "samples");
  const int64_t size = number(now, "samples");
  if (before != size) {
    return {"it had " + std::to_string(before) + " samples and now has " + std::to_string(size), ""};
  }
  const int64_t digested = number(now, "digested");
  const bool comparable = number(saved, "digested") == digested;
  if (comparable && saved.at("digest").get<std::string>() != now.at("digest").get<std::string>()) {
    return {"its " + std::to_string(size) + " samples hold other values", ""};
  }
  if (comparable && digested > 0 && digested == size) return {};
  DataDifference difference;
  for (const auto& [path, file] : now.at("files").items()) {
    if (!saved.at("files").contains(path)) continue;
    const json& old = saved.at("files").at(path);
    if (number(old, "bytes") != number(file, "bytes")) {
      return {"the file of its " + path + " had " + std::to_string(number(old, "bytes")) + " bytes and now has " +
                  std::to_string(number(file, "bytes")),
              ""};
    }
    if (number(old, "modified") == number(file, "modified")) continue;
    difference.doubt = "the file of its " + path + " was written again since the checkpoint was made; its size and " +
                       std::to_string(comparable ? digested : 0) + " of " + std::to_string(size) +
                       " samples that were compared are the same";
  }
  return difference;
}

}  // namespace trainrun
