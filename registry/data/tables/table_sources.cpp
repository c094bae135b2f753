#include "registry/data/tables/table_sources.h"

#include <array>
#include <string_view>

#include "registry/data/data_file.h"
#include "registry/formats/files/regular_file.h"

namespace trainrun {
namespace {

TableKind kind_of(const std::string& path) {
  open_regular_file(path);  // what is wrong with the file itself is said first
  constexpr size_t kEnough = 4096;
  std::string start(kEnough, '\0');
  start.resize(DataFile(path).read(start.data(), start.size()));
  if (start.starts_with("PAR1") || start.starts_with("ARROW1") || start.starts_with("\xff\xff\xff\xff")) {
    return TableKind::kArrow;
  }
  if (start.starts_with("SQLite format 3")) return TableKind::kSqlite;
  const size_t first = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  return first != std::string::npos && start[first] == '{' ? TableKind::kJsonl : TableKind::kCsv;
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
