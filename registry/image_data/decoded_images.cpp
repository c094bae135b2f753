#include "registry/image_data/decoded_images.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "registry/data/data_cache.h"
#include "registry/formats/files/checksum.h"
#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/files/file_mapping.h"

namespace trainrun {

namespace {

using nlohmann::json;

constexpr size_t kAtATime = 256;  // images decoded at a time
constexpr std::string_view kMark = "trainrun images 2\n";

// The file: the images' bytes one after another; their sizes, their checksums and what was wrong, as JSON; the JSON's
// length and checksum in 8 bytes each in the order of the machine, which alone reads it; kMark.

/// What the name of the file is made of: it changes when a file does.
std::string key_of(const std::vector<std::string>& files, const std::string& kind) {
  Sha256 hash;
  const auto add = [&](const std::string& text) { hash.update(text.c_str(), text.size() + 1); };
  add(std::string(kMark) + kind);
  for (const std::string& path : files) {
    struct stat status{};
    if (stat(path.c_str(), &status) != 0) throw ReadError(path, "open", errno);
    add(std::filesystem::absolute(path).string());
    add(std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
        std::to_string(status.st_mtim.tv_nsec));
  }
  return hash.finish();
}

struct Tail {
  uint64_t length = 0;  // of the JSON
  uint64_t checksum = 0;
};

std::string_view image_bytes(const at::Tensor& image) {
  return {static_cast<const char*>(image.const_data_ptr()), image.nbytes()};
}

void write_images(const std::string& path, size_t count, const DecodeImage& decode) {
  write_file_atomically(path, [&](FileWriter& file) {
    json sizes = json::array();
    json sums = json::array();
    json faults = json::object();
    for (size_t first = 0; first < count; first += kAtATime) {
      DecodedImages piece{std::vector<at::Tensor>(count), std::vector<std::string>(count)};
      const size_t last = std::min(first + kAtATime, count);
      decode_ahead(decode, first, last, true, piece);
      for (size_t i = first; i < last; ++i) {
        if (!piece.faults[i].empty()) faults[std::to_string(i)] = piece.faults[i];
        sizes.push_back(piece.images[i].defined() ? piece.images[i].sizes().vec() : std::vector<int64_t>{0, 0, 0});
        sums.push_back(piece.images[i].defined() ? checksum_of(image_bytes(piece.images[i])) : 0);
        if (piece.images[i].defined()) file.write(image_bytes(piece.images[i]));
      }
    }
    const std::string text =
        json{{"sizes", sizes}, {"sums", sums}, {"faults", faults}}.dump(-1, ' ', false, json::error_handler_t::replace);
    const Tail tail{text.size(), checksum_of(text)};
    file.write(text);
    file.write(&tail, sizeof(tail));
    file.write(kMark);
  });
}

/// Whether each image has its checksum: a pixel that changed on the disk would be learnt from.
bool are_whole(const std::vector<at::Tensor>& images, const std::vector<uint64_t>& sums) {
  std::atomic<bool> whole = true;
  at::parallel_for(0, static_cast<int64_t>(images.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); whole && i < static_cast<size_t>(end); ++i) {
      if (images[i].defined() && checksum_of(image_bytes(images[i])) != sums[i]) whole = false;
    }
  });
  return whole;
}

/// Nothing: there is no such file, or it is damaged.
std::optional<DecodedImages> read_images(const std::string& path, size_t count) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return std::nullopt;
  auto file = std::make_shared<const FileMapping>(path, MappedFor::kWriting);  // as a tensor may be
  std::string_view text = file->bytes();
  Tail tail;
  if (!text.ends_with(kMark) || text.size() < kMark.size() + sizeof(tail)) return std::nullopt;
  text.remove_suffix(kMark.size());
  std::memcpy(&tail, text.data() + text.size() - sizeof(tail), sizeof(tail));
  text.remove_suffix(sizeof(tail));
  if (tail.length > text.size()) return std::nullopt;
  const std::string_view description = text.substr(text.size() - tail.length);
  if (checksum_of(description) != tail.checksum) return std::nullopt;
  const json header = json::parse(description, nullptr, false);
  if (!header.is_object() || header.value("sizes", json()).size() != count) return std::nullopt;
  DecodedImages result{std::vector<at::Tensor>(count), std::vector<std::string>(count)};
  for (const auto& [number, fault] : header.at("faults").items()) {
    result.faults.at(std::stoull(number)) = fault.get<std::string>();
  }
  size_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto size = header.at("sizes")[i].get<std::array<int64_t, 3>>();
    const auto bytes = static_cast<size_t>(size[0] * size[1] * size[2]);
    if (bytes > text.size() - tail.length - offset) return std::nullopt;
    if (result.faults[i].empty()) {
      result.images[i] = at::from_blob(file->begin() + offset, size, [file](void*) {}, at::kByte);
    }
    offset += bytes;
  }
  const bool fits = offset == text.size() - tail.length;
  if (!fits || !are_whole(result.images, header.at("sums").get<std::vector<uint64_t>>())) return std::nullopt;
  return result;
}

}  // namespace

void decode_ahead(const DecodeImage& decode, size_t first, size_t last, bool keep, DecodedImages& into) {
  at::parallel_for(static_cast<int64_t>(first), static_cast<int64_t>(last), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        at::Tensor image = decode(i);
        if (keep) into.images[i] = std::move(image);
      } catch (const ReadError&) {
        throw;  // tomorrow the file may be there again, and training would go another way
      } catch (const DataError& error) {
        into.faults[i] = error.what();
      }
    }
  });
}

DecodedImages decoded_on_disk(const std::vector<std::string>& files, size_t count, const std::string& kind,
                              const DecodeImage& decode) {
  std::string damaged;
  DecodedImages images = kept_in_cache<DecodedImages>(
      "images", key_of(files, kind), [&](const std::string& path) { return read_images(path, count); },
      [&](const std::string& path) {
        std::error_code unreadable;
        if (std::filesystem::exists(path, unreadable)) damaged = path;
        write_images(path, count, decode);
      });
  if (!damaged.empty())
    images.note = damaged + ", where decoded images are kept, was damaged and has been written again";
  return images;
}

}  // namespace trainrun
