#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>

#include "registry/data/tables/table.h"
#include "registry/data/tables/table_sources.h"
#include "registry/data/text_file.h"
#include "registry/formats/files/regular_file.h"
#include "registry/kinds/dataset.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

/// "the file has the tables a, b"; or "" where it cannot be read.
std::string tables_of_file(const std::string& path);

struct Sqlite : TableOptions {
  std::optional<std::string> table;
  std::optional<std::string> query;
  double timeout_seconds = 60;

  static void describe(Fields<Sqlite>& f) {
    TableOptions::describe_into(f);
    f.optional("table", &Sqlite::table).doc("the table or view to read");
    f.optional("query", &Sqlite::query).doc("or the SELECT that returns the rows; only ORDER BY fixes their order");
    f.optional("timeout_seconds", &Sqlite::timeout_seconds)
        .greater_than(0)
        .unit("seconds")
        .doc(
            "maximum time that the query may take for each row; a query that sorts needs most of its time for the "
            "first row");
    f.either("table", "query");
  }
  void check(Checker& checker) const {
    check_options(checker);
    if (table || query) return;
    if (const std::string known = tables_of_file(path); !known.empty()) checker.fail("table", known);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// An identifier as SQL writes it.
std::string identifier(const std::string& name) { return in_marks(name, '"'); }

class SqliteTable : public TableReader {
 public:
  explicit SqliteTable(const Sqlite& options)
      : path_(options.path),
        timeout_(options.timeout_seconds),
        database_(nullptr, &sqlite3_close),
        rows_(nullptr, &sqlite3_finalize) {
    open_regular_file(path_);
    sqlite3* database = nullptr;
    const int code = sqlite3_open_v2(path_.c_str(), &database, SQLITE_OPEN_READONLY, nullptr);
    database_.reset(database);
    if (code != SQLITE_OK) fail();
    sqlite3_limit(database, SQLITE_LIMIT_LENGTH, static_cast<int>(kLongestLine));
    sqlite3_progress_handler(database, kOperations, &SqliteTable::is_late, this);
    begin_waiting();
    if (options.table) check_table(*options.table);
    is_table_ = !options.query;
    query_ =
        options.query ? *options.query : "SELECT * FROM " + identifier(options.table ? *options.table : only_table());
    rows_ = prepare(query_);
    for (int i = 0; i < sqlite3_column_count(rows_.get()); ++i)
      names_.emplace_back(sqlite3_column_name(rows_.get(), i));
    if (names_.empty()) throw DataError(path_ + ": the query gives no columns; expected a SELECT");
    for (const std::string& name : names_) require_utf8(name, path_ + ": the name of a column");
    are_read_.assign(names_.size(), true);
  }

  const std::vector<std::string>& names() const override { return names_; }

  void read_only(const std::vector<size_t>& places) override {
    are_read_.assign(names_.size(), false);
    for (const size_t place : places) {
      if (may_hold_blobs(place) && holds_blobs(place)) throw DataError(blob_fault(place));
      are_read_[place] = true;
    }
  }

  bool next(std::vector<Cell>& row) override {
    begin_waiting();
    const int code = sqlite3_step(rows_.get());
    if (code == SQLITE_DONE) return false;
    ++number_;
    if (code == SQLITE_INTERRUPT) {
      throw DataError(place() + ": the query has returned no row for " + detail::number_text(timeout_) +
                      " s; if it needs that long, write a larger timeout_seconds");
    }
    if (code != SQLITE_ROW) fail();
    row.assign(names_.size(), Cell());
    for (size_t i = 0; i < row.size(); ++i) {
      if (are_read_[i]) read_cell(i, row[i]);
    }
    return true;
  }

  int64_t row_number() const override { return number_; }

  /// Where no recipe says which.
  std::string only_table() const {
    const std::vector<std::string> names = tables();
    if (names.size() == 1) return names[0];
    throw DataError(path_ + (names.empty() ? ": has no table"
                                           : ": has several tables (" + join(names) +
                                                 "); put the one to read into a file of its own"));
  }
  std::vector<std::string> tables() const {
    const Statement list = prepare(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
        "ORDER BY name");
    std::vector<std::string> names;
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(list.get())) == SQLITE_ROW) {
      names.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(list.get(), 0)));
    }
    if (code != SQLITE_DONE) fail();
    return names;
  }

 private:
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

  static constexpr int kOperations = 100'000;  // of SQLite's machine between two looks at the clock

  void begin_waiting() { asked_ = std::chrono::steady_clock::now(); }
  static int is_late(void* self) {
    const auto& table = *static_cast<const SqliteTable*>(self);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - table.asked_;
    return waited.count() > table.timeout_ ? 1 : 0;
  }

  std::string place() const { return path_ + (number_ > 0 ? ":" + std::to_string(number_) : ""); }
  [[noreturn]] void fail() const { throw DataError(place() + ": " + sqlite3_errmsg(database_.get())); }

  Statement prepare(const std::string& sql) const {
    sqlite3_stmt* statement = nullptr;
    const int code =
        sqlite3_prepare_v2(database_.get(), sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr);
    Statement result(statement, &sqlite3_finalize);
    if (code != SQLITE_OK) fail();
    if (!result) throw DataError(path_ + ": the query is empty");
    return result;
  }

  void check_table(const std::string& table) const {
    const std::vector<std::string> names = tables();
    if (std::find(names.begin(), names.end(), table) != names.end()) return;
    throw DataError(path_ + ": there is no table '" + table + "'" + suggestion(table, names));
  }

  /// Whether the type that is declared lets values be what they are, as BLOB does: of other types they are hardly ever
  /// BLOBs. What a query computes has no type, and is not looked at, since it would be computed once more.
  bool may_hold_blobs(size_t index) const {
    const char* declared = sqlite3_column_decltype(rows_.get(), static_cast<int>(index));
    std::string type = declared ? declared : "";
    std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (!is_table_) return type.find("BLOB") != std::string::npos;
    constexpr std::array kPlain = {"INT", "CHAR", "CLOB", "TEXT", "REAL", "FLOA", "DOUB", "NUM", "DEC", "DATE", "BOOL"};
    return std::ranges::none_of(kPlain, [&](const char* word) { return type.find(word) != std::string::npos; });
  }
  /// By the first rows.
  bool holds_blobs(size_t index) {
    begin_waiting();
    const Statement found = prepare("SELECT 1 FROM (SELECT typeof(" + identifier(names_[index]) + ") AS kind FROM (" +
                                    query_ + ") LIMIT 1000) WHERE kind = 'blob' LIMIT 1");
    return sqlite3_step(found.get()) == SQLITE_ROW;  // what fails here fails again as the rows are read
  }
  std::string blob_fault(size_t index) const {
    return place() + ":" + names_[index] +
           ": holds BLOBs, which are not read; write what is needed of them as columns of plain values, or leave this "
           "column out, such as by listing the others in features";
  }

  void read_cell(size_t index, Cell& cell) const {
    const auto column = static_cast<int>(index);
    switch (sqlite3_column_type(rows_.get(), column)) {
      case SQLITE_NULL:
        return;
      case SQLITE_INTEGER:
        cell.kind = Cell::Kind::kInteger;
        cell.integer = sqlite3_column_int64(rows_.get(), column);
        return;
      case SQLITE_FLOAT:
        cell.kind = Cell::Kind::kNumber;
        cell.number = sqlite3_column_double(rows_.get(), column);
        return;
      case SQLITE_TEXT:
        cell.kind = Cell::Kind::kText;
        cell.text.assign(reinterpret_cast<const char*>(sqlite3_column_text(rows_.get(), column)),
                         static_cast<size_t>(sqlite3_column_bytes(rows_.get(), column)));
        require_utf8(cell.text, place() + ":" + names_[index]);
        return;
      default:
        throw DataError(blob_fault(index));
    }
  }

  std::string path_;
  double timeout_;                               // seconds
  std::chrono::steady_clock::time_point asked_;  // for the row that is waited for
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_;
  Statement rows_;
  std::string query_;      // that gives them
  bool is_table_ = false;  // they are all of a table or view
  std::vector<std::string> names_;
  std::vector<bool> are_read_;  // of these columns
  int64_t number_ = 0;
};

class SqliteSource : public TableSource {
 public:
  explicit SqliteSource(Sqlite options) : options_(std::move(options)) {}
  std::unique_ptr<TableReader> open() const override { return std::make_unique<SqliteTable>(options_); }
  std::string place(int64_t row_number) const override { return options_.path + ":" + std::to_string(row_number); }

  TableKind kind() const override { return TableKind::kSqlite; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    Sqlite options = options_;
    options.path = path;
    return std::make_unique<SqliteSource>(std::move(options));
  }

 private:
  Sqlite options_;
};

std::string tables_of_file(const std::string& path) {
  Sqlite any;
  any.path = path;
  any.query = "SELECT 1";
  std::vector<std::string> names;
  try {
    names = SqliteTable(any).tables();
  } catch (const std::exception&) {  // which reading it tells
    return "";
  }
  return names.empty() ? "" : "the file has the " + std::string(names.size() == 1 ? "table " : "tables ") + join(names);
}

std::unique_ptr<Dataset> Sqlite::build(const DatasetInputs& inputs) const {
  return make_table(*this, std::make_unique<SqliteSource>(*this), inputs);
}

}  // namespace

std::unique_ptr<TableSource> sqlite_source(const std::string& path) { return SqliteSource(Sqlite()).of_file(path); }

std::string only_sqlite_table(const std::string& path) {
  Sqlite any;
  any.path = path;
  any.query = "SELECT 1";
  return SqliteTable(any).only_table();
}

void add_sqlite(DatasetRegistry& datasets) {
  datasets.add<Sqlite>("SQLite", "rows of a table or a query of an SQLite file: columns as features, one as label");
}

}  // namespace trainrun
