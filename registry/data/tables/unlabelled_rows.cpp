#include "registry/data/tables/unlabelled_rows.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "registry/data/path_patterns.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

constexpr int64_t kMostRows = 16384;            // of a piece
constexpr int64_t kMostCells = 1 << 20;         // likewise
constexpr size_t kMostNames = 8;                // of columns that a file lacks
constexpr size_t kNowhere = std::string::npos;  // the place of a column that no object of a file has

bool is_in(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

size_t place_in(const Names& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

json value_in(Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      return nullptr;
    case Cell::Kind::kText:
      return std::move(cell.text);
    case Cell::Kind::kInteger:
      return cell.is_boolean ? json(cell.integer != 0) : json(cell.integer);
    case Cell::Kind::kNumber:
      return cell.number;
    case Cell::Kind::kList:
    case Cell::Kind::kObject:
      break;
  }
  const bool is_object = cell.kind == Cell::Kind::kObject;
  json whole = is_object ? json::object() : json::array();
  for (size_t i = 0; i < cell.list.size(); ++i) {
    if (is_object) {
      whole[cell.keys[i]] = value_in(cell.list[i]);
    } else {
      whole.push_back(value_in(cell.list[i]));
    }
  }
  return whole;
}

bool has_lines(const TableSource& file) { return file.kind() == TableKind::kCsv || file.kind() == TableKind::kJsonl; }

void require_different(const Names& names, const TableSource& file) {
  std::set<std::string> different;
  for (const std::string& name : names) {
    if (different.insert(name).second) continue;
    throw DataError(file.place(1) + ":" + name + ": two columns are called '" + name + "'");
  }
}

}  // namespace

UnlabelledRows::UnlabelledRows(UnlabelledSource source, Columns columns, Files files)
    : source_(std::move(source)), columns_(std::move(columns)), files_(std::move(files)) {
  if (files_.empty()) throw DataError("there is no table to read");
  for (const auto& file : files_) are_texts_ = are_texts_ && file->kind() == TableKind::kCsv;
  for (size_t i = 0; i < files_.size(); ++i) open_file(i);  // what is wrong with one is said before any is read
  open_file(0);
}

/// Not when this is made: rows that cannot be read may then be an error.
void UnlabelledRows::pass_over_first() {
  has_begun_ = true;
  for (int64_t passed = 0; passed < source_.begin; ++passed) {
    if (!next_row(/*is_read=*/false)) return;
  }
}

std::optional<UnlabelledData::Piece> UnlabelledRows::next() {
  if (!has_begun_) pass_over_first();
  Piece piece;
  const auto width = static_cast<int64_t>(std::max<size_t>(read_places_.size() + beside_.size(), 1));
  const int64_t most = std::clamp<int64_t>(kMostCells / width, 1, kMostRows);
  while (piece.num_read < most && next_row(/*is_read=*/true)) ++piece.num_read;
  if (piece.num_read == 0) return std::nullopt;
  if (files_.size() > 1) piece.beside.push_back({"file", std::move(paths_)});
  if (!has_ids_) piece.beside.push_back({number_name_, at::tensor(numbers_, at::kLong)});
  for (Beside& beside : beside_) {
    piece.beside.push_back({beside.name, are_texts_ ? ValueColumn::Values(std::move(beside.texts))
                                                    : ValueColumn::Values(std::move(beside.values))});
    beside.texts.clear();
    beside.values.clear();
  }
  piece.samples = make(std::move(places_), std::move(numbers_));
  places_.clear();
  numbers_.clear();
  paths_.clear();
  return piece;
}

/// Reads a row, or passes over it; false at the end.
bool UnlabelledRows::next_row(bool is_read) {
  while (reader_) {
    try {
      if (reader_->next(row_)) {
        has_rows_ = true;
        break;
      }
    } catch (const ReadError&) {
      throw;
    } catch (const DataError& error) {
      const bool gets_on = reader_->row_number() != last_broken_;
      if (!source_.broken || !gets_on) throw;
      last_broken_ = reader_->row_number();
      has_rows_ = true;
      if (is_read) source_.broken(error.what());
      return true;
    }
    reader_.reset();  // which may not be asked again
    if (!has_rows_) empty_.push_back(source_.paths[file_]);
    if (file_ + 1 < files_.size()) open_file(file_ + 1);
  }
  if (reader_ && is_read) take_row();
  return reader_ != nullptr;
}

void UnlabelledRows::take_row() {
  const int64_t number = reader_->row_number();
  std::string place = files_[file_]->place(number);
  std::vector<Cell*> cells;
  cells.reserve(read_places_.size());
  for (const size_t at : read_places_) cells.push_back(&row_[at]);
  try {
    take(cells, *files_[file_], number, place);
  } catch (const DataError& error) {
    if (!source_.broken) throw;
    cut(static_cast<int64_t>(places_.size()));
    source_.broken(error.what());
    return;
  }
  places_.push_back(std::move(place));
  numbers_.push_back(number);
  if (files_.size() > 1) paths_.push_back(source_.paths[file_]);
  for (size_t i = 0; i < beside_.size(); ++i) {
    if (beside_places_[i] == kNowhere) {
      beside_[i].values.emplace_back(nullptr);
      continue;
    }
    Cell& cell = row_[beside_places_[i]];
    if (are_texts_) {
      beside_[i].texts.push_back(cell.text);  // the row keeps its memory
    } else {
      beside_[i].values.push_back(value_in(cell));
    }
  }
}

void UnlabelledRows::open_file(size_t number) {
  file_ = number;
  last_broken_ = -1;
  has_rows_ = false;
  const TableSource& file = *files_[number];
  reader_ = file.open();
  const Names& names = reader_->names();
  require_different(names, file);
  Names lacking;
  for (const std::string& name : columns_.read) {
    if (!is_in(names, name)) lacking.push_back(name);
  }
  if (!lacking.empty()) throw DataError(lacking_text(lacking, names));
  read_places_.clear();
  for (const std::string& name : columns_.read) read_places_.push_back(place_in(names, name));
  if (number_name_.empty()) {
    choose_beside(names);
    leave_out_unreadable(names);
  }
  find_beside(names);
  std::vector<size_t> places = read_places_;
  std::copy_if(beside_places_.begin(), beside_places_.end(), std::back_inserter(places),
               [](size_t place) { return place != kNowhere; });
  reader_->read_only(places);
}

std::vector<std::string> UnlabelledRows::notes_of_files() const {
  std::vector<std::string> notes;
  for (const auto& file : files_) {
    for (std::string& note : file->notes()) notes.push_back(std::move(note));
  }
  if (const std::string note = note_on_empty_files(empty_, files_.size(), "rows"); !note.empty()) notes.push_back(note);
  if (!unreadable_.empty()) {
    notes.push_back(source_.paths[0] + ": holds values of types that are not read in " +
                    join_first(unreadable_, kMostNames, LeftOut::kCount) +
                    ", which the model does not need; they do not stand beside the predictions");
  }
  return notes;
}

std::string UnlabelledRows::lacking_text(const Names& lacking, const Names& names) const {
  const TableSource& file = *files_[file_];
  const std::string of_first = file.column_advice(lacking[0], names);
  if (lacking.size() > 1 && !of_first.empty() && of_first == file.column_advice(lacking.back(), names)) {
    return file.place(1) + ": there are no columns " + join_first(lacking, kMostNames, LeftOut::kCount) +
           ", which the model reads" + of_first;
  }
  std::string text;
  for (const std::string& name : lacking) {
    const std::string advice = file.column_advice(name, names);
    text += (text.empty() ? "" : "\n") + file.place(1) + ":" + name +
            ": there is no such column, which the model reads" + (advice.empty() ? suggestion(name, names) : advice);
  }
  return text;
}

/// The ids first, then what else the first file has.
void UnlabelledRows::choose_beside(const Names& names) {
  number_name_ = has_lines(*files_[file_]) ? "line" : "row";
  for (const std::string& id : columns_.ids) {
    if (is_in(names, id)) beside_.push_back({id, {}, {}});
  }
  has_ids_ = !columns_.ids.empty() && beside_.size() == columns_.ids.size();
  for (const std::string& name : columns_.kept) {
    const bool is_there =
        std::any_of(beside_.begin(), beside_.end(), [&](const Beside& own) { return own.name == name; });
    if (is_there) continue;
    if (!is_in(names, name)) throw DataError(lacking_text({name}, names));
    beside_.push_back({name, {}, {}});
  }
  for (const std::string& name : names) {
    const bool is_known = is_in(columns_.kept, name) || is_in(columns_.labels, name) || is_in(columns_.read, name) ||
                          is_in(columns_.ids, name);
    if (!is_known) beside_.push_back({name, {}, {}});
  }
}

/// Of what nobody asked for.
void UnlabelledRows::leave_out_unreadable(const Names& names) {
  std::erase_if(beside_, [&](const Beside& beside) {
    if (is_in(columns_.ids, beside.name) || is_in(columns_.kept, beside.name)) return false;
    try {
      reader_->read_only({place_in(names, beside.name)});
      return false;
    } catch (const ReadError&) {
      throw;
    } catch (const DataError&) {
      unreadable_.push_back(beside.name);
      return true;
    }
  });
}

void UnlabelledRows::find_beside(const Names& names) {
  beside_places_.clear();
  for (const Beside& beside : beside_) {
    if (!is_in(names, beside.name)) {
      if (files_[file_]->kind() == TableKind::kJsonl) {  // whose objects need not have all keys
        beside_places_.push_back(kNowhere);
        continue;
      }
      throw DataError(files_[file_]->place(1) + ":" + beside.name + ": there is no such column, which " +
                      source_.paths[0] + " has");
    }
    beside_places_.push_back(place_in(names, beside.name));
  }
}

}  // namespace trainrun
