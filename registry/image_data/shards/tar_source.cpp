#include "registry/image_data/shards/tar_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "registry/data/data_file.h"
#include "registry/formats/files/regular_file.h"

namespace trainrun {

size_t TarSource::read(void* data, size_t size) {
  const size_t got = read_some(data, size);
  position_ += got;
  return got;
}

void TarSource::read_exactly(void* data, size_t size, const std::string& what) {
  const size_t got = read(data, size);
  if (got == size) return;
  throw DataError(name_ + ": the file ends within " + what + ": " + std::to_string(size) + " bytes expected, " +
                  std::to_string(got) + " found");
}

void TarSource::skip(uint64_t size, const std::string& what) {
  const uint64_t leapt = leap(size);
  position_ += leapt;
  std::array<char, size_t{1} << 16> piece;
  for (uint64_t rest = size - leapt; rest > 0;) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(rest, piece.size()));
    read_exactly(piece.data(), wanted, what);
    rest -= wanted;
  }
}

uint64_t TarSource::leap(uint64_t) { return 0; }

namespace {

class TarDataFile : public TarSource {
 public:
  explicit TarDataFile(const std::string& path) : TarSource(path), file_(path) {}

 private:
  size_t read_some(void* data, size_t size) override { return file_.read(data, size); }

  DataFile file_;
};

class TarPlainFile : public TarSource {
 public:
  explicit TarPlainFile(const std::string& path) : TarSource(path), file_(open_regular_file(path)) {
    struct stat status{};
    if (fstat(file_.number(), &status) != 0) throw ReadError(path, "read", errno);
    size_ = static_cast<uint64_t>(status.st_size);
    std::array<unsigned char, 2> start{};
    constexpr std::array<unsigned char, 2> kGzip = {0x1F, 0x8B};
    if (pread(file_.number(), start.data(), start.size(), 0) == 2 && start == kGzip) {
      throw DataError(path + ": is compressed, but samples are read from any place of it; unpack it with gunzip");
    }
  }

 private:
  size_t read_some(void* data, size_t size) override {
    auto* to = static_cast<char*>(data);
    for (size_t done = 0; done < size;) {
      const size_t held = kept_at() < kept_.size() ? std::min(size - done, kept_.size() - kept_at()) : 0;
      if (held == 0) {
        if (!fill()) return done;
        continue;
      }
      std::memcpy(to + done, kept_.data() + kept_at(), held);
      done += held;
      at_ += held;
    }
    return size;
  }
  /// No farther than to the file's end, so that one that is cut off is noticed.
  uint64_t leap(uint64_t size) override {
    const uint64_t leapt = std::min(size, size_ - std::min(at_, size_));
    at_ += leapt;
    return leapt;
  }

  size_t kept_at() const { return at_ >= kept_from_ ? static_cast<size_t>(at_ - kept_from_) : kept_.size(); }
  bool fill() {
    kept_.resize(kPiece);
    ssize_t got = -1;
    do {
      got = pread(file_.number(), kept_.data(), kept_.size(), static_cast<off_t>(at_));
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw ReadError(name(), "read", errno);
    kept_.resize(static_cast<size_t>(got));
    kept_from_ = at_;
    return got > 0;
  }

  static constexpr size_t kPiece = 4096;  // a small member and the headers around it
  Descriptor file_;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
  uint64_t kept_from_ = 0;
  std::vector<char> kept_;
};

class TarMemory : public TarSource {
 public:
  TarMemory(const std::string& name, std::string_view bytes) : TarSource(name), rest_(bytes) {}

 private:
  size_t read_some(void* data, size_t size) override {
    const size_t got = std::min(size, rest_.size());
    std::memcpy(data, rest_.data(), got);
    rest_.remove_prefix(got);
    return got;
  }

  std::string_view rest_;
};

}  // namespace

std::unique_ptr<TarSource> tar_in_data_file(const std::string& path) { return std::make_unique<TarDataFile>(path); }

std::unique_ptr<TarSource> tar_in_plain_file(const std::string& path) { return std::make_unique<TarPlainFile>(path); }

std::unique_ptr<TarSource> tar_in_memory(const std::string& name, std::string_view bytes) {
  return std::make_unique<TarMemory>(name, bytes);
}

}  // namespace trainrun
