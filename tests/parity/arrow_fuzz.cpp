#include "tests/parity/arrow_fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "registry/datasets/arrow_library.h"
#include "registry/error.h"
#include "registry/files/descriptor.h"
#include "registry/sample_draws.h"

namespace trainrun {

namespace {

/// Changes beside the end of the file hit a footer, in which everything else is described.
void change_footer(std::string& file, const std::string& other, RandomStream& random) {
  constexpr size_t kMost = 2000;
  const size_t begin = file.size() - std::min(file.size(), static_cast<size_t>(random.integer(kMost)));
  std::string footer = file.substr(begin);
  change_file(footer, other, random);
  file.replace(begin, std::string::npos, footer);
}

/// Whether a column is of a type that is read.
bool is_readable(const std::string& path, size_t place) {
  const auto reader = open_arrow_table(path, ObjectColumns::kRead);
  try {
    reader->read_only({place});
    return true;
  } catch (const DataError&) {
    return false;
  }
}

/// Every row of the columns that can be read.
void read_all(const std::string& path) {
  const auto opened = open_arrow_table(path, ObjectColumns::kRead);
  std::vector<size_t> places;
  for (size_t i = 0; i < opened->names().size(); ++i) {
    if (is_readable(path, i)) places.push_back(i);
  }
  if (places.empty()) throw DataError("there is no column to read");
  opened->read_only(places);
  std::vector<Cell> row;
  while (opened->next(row)) {
    if (row.size() != opened->names().size()) throw std::logic_error("a row lacks cells");
  }
}

}  // namespace

FuzzResult fuzz_arrow(const std::vector<std::string>& contents, int64_t rounds, uint64_t seed) {
  FuzzResult result;
  RandomStream random(seed);
  const auto any = [&] { return contents[static_cast<size_t>(random.integer(static_cast<int64_t>(contents.size())))]; };
  for (int64_t round = 0; round < rounds; ++round) {
    std::string file = any();
    const std::string other = any();
    for (int64_t i = 1 + random.integer(4); i > 0; --i) {
      random.integer(2) == 0 ? change_file(file, other, random) : change_footer(file, other, random);
    }
    const Descriptor memory(memfd_create("fuzzed", MFD_CLOEXEC));
    if (memory.number() < 0 || write(memory.number(), file.data(), file.size()) != static_cast<ssize_t>(file.size())) {
      throw std::runtime_error("there is no file in memory");
    }
    try {
      read_all("/proc/self/fd/" + std::to_string(memory.number()));
      ++result.decoded;
    } catch (const DataError&) {
      ++result.refused;
    }
  }
  return result;
}

}  // namespace trainrun
