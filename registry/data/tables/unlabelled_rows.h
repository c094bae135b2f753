#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/data/tables/table_options.h"
#include "registry/kinds/unlabelled_data.h"

namespace trainrun {

/// Rows of files of tables, whose columns are found by their names, in any order. Beside their predictions come the ids,
/// or else each row's number, and the columns that the model does not read; a label is left out. Whoever derives from it
/// makes samples of the cells that the model reads.
class UnlabelledRows : public UnlabelledData {
 public:
  /// How the columns of a file are called, by what training knows of them.
  struct Columns {
    std::vector<std::string> read;  // by the model
    std::vector<std::string> labels;
    std::vector<std::string> ids;
    std::vector<std::string> kept = {};  // of those above: they stand beside the samples, too
  };
  std::optional<Piece> next() override;

 protected:
  using Files = std::vector<std::unique_ptr<TableSource>>;

  /// Throws DataError where one of the files cannot be opened or lacks a column. `files`: those of `source.paths`.
  UnlabelledRows(UnlabelledSource source, Columns columns, Files files);

  /// Takes the cells of a row, one for each of Columns::read; `place`: "people.csv:17". Throws DataError where the row
  /// cannot be read.
  virtual void take(const std::vector<Cell*>& cells, const TableSource& file, int64_t row_number,
                    const std::string& place) = 0;
  /// Forgets all rows that were taken but the first `count`; of the last one perhaps only some cells were.
  virtual void cut(int64_t count) = 0;
  /// Samples of the rows that were taken, and forgets these. `places`: of each row; `numbers`: by which people find it.
  virtual std::unique_ptr<Dataset> make(std::vector<std::string> places, std::vector<int64_t> numbers) = 0;

  const UnlabelledSource& source() const { return source_; }
  /// What a user should know of how the files are read.
  std::vector<std::string> notes_of_files() const;

 private:
  struct Beside {
    std::string name;
    std::vector<std::string> texts;  // of delimited text
    std::vector<nlohmann::json> values;
  };

  bool next_row(bool is_read);
  void take_row();
  void open_file(size_t number);
  void pass_over_first();
  void choose_beside(const std::vector<std::string>& names);
  void leave_out_unreadable(const std::vector<std::string>& names);
  void find_beside(const std::vector<std::string>& names);
  std::string lacking_text(const std::vector<std::string>& lacking, const std::vector<std::string>& names) const;

  UnlabelledSource source_;
  Columns columns_;
  Files files_;
  size_t file_ = 0;
  std::unique_ptr<TableReader> reader_;  // of this one
  std::vector<Cell> row_;
  std::vector<size_t> read_places_;
  int64_t last_broken_ = -1;
  bool has_rows_ = false;           // the file has some
  std::vector<std::string> empty_;  // files that have none
  bool has_begun_ = false;
  bool has_ids_ = false;
  bool are_texts_ = true;  // all files are delimited text
  std::string number_name_;
  std::vector<Beside> beside_;
  std::vector<size_t> beside_places_;
  std::vector<std::string> unreadable_;  // columns of the first file that would be among them
  // Of the piece that is read:
  std::vector<std::string> places_;
  std::vector<int64_t> numbers_;
  std::vector<std::string> paths_;
};

}  // namespace trainrun
