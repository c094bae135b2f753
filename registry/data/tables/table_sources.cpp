#include "registry/data/tables/table_sources.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "registry/data/data_file.h"
#include "registry/formats/files/regular_file.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

/// A list of objects, or a file that is called .json and holds a list: its lines are neither rows nor texts.
bool is_json_list(const std::string& path, std::string_view start) {
  constexpr std::string_view kBlanks = " \t\r\n";
  if (!start.starts_with('[')) return false;
  const size_t next = start.find_first_not_of(kBlanks, 1);
  return has_extension(path, ".json") || (next != std::string_view::npos && start[next] == '{');
}

TableKind kind_of(const std::string& path) {
  open_regular_file(path);  // what is wrong with the file itself is said first
  constexpr size_t kEnough = 4096;
  std::string start(kEnough, '\0');
  start.resize(DataFile(path).read(start.data(), start.size()));
  if (start.starts_with("PAR1") || start.starts_with("ARROW1") || start.starts_with("\xff\xff\xff\xff")) {
    return TableKind::kArrow;
  }
  if (start.starts_with("SQLite format 3")) return TableKind::kSqlite;
  const size_t first = std::min(start.find_first_not_of("\xef\xbb\xbf \t\r\n"), start.size());
  if (is_json_list(path, std::string_view(start).substr(first))) {
    throw DataError(path +
                    ": is a list in JSON; write JSON lines, each object on a line of its own without brackets around "
                    "them: pandas does so by to_json(path, orient='records', lines=True)");
  }
  return first < start.size() && start[first] == '{' ? TableKind::kJsonl : TableKind::kCsv;
}

}  // namespace

std::unique_ptr<TableSource> source_of_file(const TableSource& own, const std::string& path,
                                            const std::string& column) {
  const TableKind kind = kind_of(path);
  if (kind == own.kind()) return own.of_file(path);
  switch (kind) {
    case TableKind::kCsv:
      return csv_source(path, column);
    case TableKind::kJsonl:
      return jsonl_source(path);
    case TableKind::kArrow:
      return arrow_source(path);
    case TableKind::kSqlite:
    case TableKind::kOfHub:  // no file is
      break;
  }
  return sqlite_source(path);
}

}  // namespace trainrun
