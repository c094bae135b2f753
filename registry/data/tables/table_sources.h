#pragma once

#include <memory>
#include <string>

#include "registry/data/tables/table_options.h"
#include "registry/data/text_file.h"

// Files of tables that no recipe says anything of.

namespace trainrun {

/// Of delimited text, between whose columns is what makes `column` one of them: a comma, unless the first line says
/// otherwise.
std::unique_ptr<TableSource> csv_source(const std::string& path, const std::string& column,
                                        TextEncoding encoding = TextEncoding::kUtf8);
/// Of delimited text as a recipe's `options` say, or of JSON lines, at `options.path`.
std::unique_ptr<TableSource> csv_source(const TableOptions& options, char delimiter);
std::unique_ptr<TableSource> jsonl_source(const TableOptions& options);
/// Of JSON lines, whose columns are the keys of all lines.
std::unique_ptr<TableSource> jsonl_source(const std::string& path);
/// Of Parquet or Arrow.
std::unique_ptr<TableSource> arrow_source(const std::string& path);
/// Of an SQLite file's only table.
std::unique_ptr<TableSource> sqlite_source(const std::string& path);
/// The name of that table. Throws DataError where the file has none, or several.
std::string only_sqlite_table(const std::string& path);

/// Opens a file of whatever kind its first bytes say it is: as `own` reads its file where it is of that kind. `column`:
/// one that it must have.
std::unique_ptr<TableSource> source_of_file(const TableSource& own, const std::string& path, const std::string& column);

}  // namespace trainrun
