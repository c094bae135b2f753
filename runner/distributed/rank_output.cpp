#include "runner/distributed/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr size_t kMostLine = size_t{1} << 20;  // a longer one is torn

/// Writes all of it, or as much as there is a reader for.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    if (written >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return;
    pollfd end = {descriptor, POLLOUT, 0};
    ::poll(&end, 1, -1);
  }
}

}  // namespace

RankOutput::RankOutput(int64_t rank, int to) : prefix_("[rank " + std::to_string(rank) + "] "), to_(to) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
  read_end_ = Descriptor(ends[0]);
  write_end_ = Descriptor(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // of this end alone
}

bool RankOutput::pass_on() {
  if (read_end() < 0) return false;
  std::array<char, size_t{64} << 10> chunk;
  const ssize_t size = ::read(read_end(), chunk.data(), chunk.size());
  if (size < 0) return errno == EINTR;
  if (size == 0) {
    read_end_ = Descriptor();
    return false;
  }
  pending_.append(chunk.data(), static_cast<size_t>(size));
  const size_t last = pending_.rfind('\n');
  if (last != std::string::npos) {
    write_lines(std::string_view(pending_).substr(0, last + 1));
    pending_.erase(0, last + 1);
  } else if (pending_.size() > kMostLine) {
    write_lines(pending_ + "\n");
    pending_.clear();
  }
  return true;
}

void RankOutput::finish() {
  while (pass_on()) continue;
  if (!pending_.empty()) write_lines(pending_ + "\n");
  pending_.clear();
}

/// In one piece, so that nothing else comes between as long as it is short (PIPE_BUF).
void RankOutput::write_lines(std::string_view lines) const {
  while (!lines.empty()) {
    const size_t end = lines.find('\n') + 1;
    write_all(to_, prefix_ + std::string(lines.substr(0, end)));
    lines.remove_prefix(end);
  }
}

}  // namespace trainrun
