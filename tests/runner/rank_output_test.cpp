#include "runner/distributed/rank_output.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "tests/doctest.h"

using trainrun::Descriptor;
using trainrun::RankOutput;

namespace {

/// Where a RankOutput writes to, and what has arrived there since it was last read.
class FakeTerminal {
 public:
  FakeTerminal() : file_(::memfd_create("terminal", MFD_CLOEXEC)) { REQUIRE(file_.number() >= 0); }
  int in() const { return file_.number(); }

  std::string read() {
    std::array<char, 4096> chunk;
    std::string text;
    for (ssize_t size = 0; (size = ::pread(in(), chunk.data(), chunk.size(), read_)) > 0; read_ += size) {
      text.append(chunk.data(), static_cast<size_t>(size));
    }
    return text;
  }

 private:
  Descriptor file_;
  off_t read_ = 0;
};

void say(const RankOutput& output, const std::string& text) {
  REQUIRE(::write(output.write_end(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

}  // namespace

TEST_CASE("a rank's lines come out whole, each with its rank") {
  FakeTerminal terminal;
  RankOutput first(1, terminal.in());
  RankOutput second(12, terminal.in());
  say(first, "one\ntwo\nthr");
  say(second, "begun");
  CHECK(first.pass_on());
  CHECK(second.pass_on());
  CHECK(terminal.read() == "[rank 1] one\n[rank 1] two\n");
  say(first, "ee\n\n");
  CHECK(first.pass_on());
  CHECK(terminal.read() == "[rank 1] three\n[rank 1] \n");
  CHECK_FALSE(first.pass_on());
  second.finish();
  CHECK(terminal.read() == "[rank 12] begun\n");
  second.finish();
  CHECK(terminal.read().empty());
}

TEST_CASE("where a rank has ended there is nothing to wait for") {
  FakeTerminal terminal;
  RankOutput output(3, terminal.in());
  say(output, "end");
  output.close_write_end();
  CHECK(output.pass_on());
  CHECK(output.read_end() >= 0);
  CHECK_FALSE(output.pass_on());
  CHECK(output.read_end() == -1);
  output.finish();
  CHECK(terminal.read() == "[rank 3] end\n");
}

TEST_CASE("a line without end does not fill the memory") {
  FakeTerminal terminal;
  RankOutput output(1, terminal.in());
  const std::string piece(32768, 'x');
  size_t lines = 0;
  for (int i = 0; i < 40; ++i) {  // 1.25 MiB
    say(output, piece);
    CHECK(output.pass_on());
    lines += terminal.read().empty() ? 0 : 1;
  }
  CHECK(lines == 1);
}
