#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/tables/table_reader.h"

namespace trainrun {

/// Files of a table in which no row was found when they were read, each once. Safe to be used by several readers at a time.
class EmptyFiles {
 public:
  void add(const std::string& path);
  /// What to say of them, of `num_files` in all; "" where there are none.
  std::string note(size_t num_files) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> paths_;
};

/// Files one after another, at least one, as a table with the columns of the first: the others have these in whatever
/// order, or else a DataError says so when their turn has come. `empty`: gets those that have no rows; null: nobody asks.
std::unique_ptr<TableReader> open_in_turn(std::vector<std::string> paths,
                                          std::function<std::unique_ptr<TableReader>(const std::string& path)> open,
                                          std::shared_ptr<EmptyFiles> empty = nullptr);

/// Which file a row of such a table is in, and its number there. (A row's number is that of its file and its own: they
/// take no memory, and need no file to be counted.)
std::pair<size_t, int64_t> row_in_files(int64_t row_number);

}  // namespace trainrun
