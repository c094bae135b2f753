#include "registry/data/tables/csv_reader.h"

#include <algorithm>
#include <string_view>

#include "registry/language/error.h"

namespace trainrun {

char seeming_delimiter(const std::vector<std::string>& header, const std::string& wanted) {
  for (const char delimiter : {';', '\t', '|', ','}) {
    for (const std::string& name : header) {
      size_t begin = 0;
      while (begin <= name.size() && name.find(delimiter) != std::string::npos) {
        const size_t end = std::min(name.find(delimiter, begin), name.size());
        std::string_view piece = std::string_view(name).substr(begin, end - begin);
        const bool is_quoted = piece.size() >= 2 && piece.front() == '"' && piece.back() == '"';
        if (is_quoted) piece = piece.substr(1, piece.size() - 2);
        if (piece == wanted) return delimiter;
        begin = end + 1;
      }
    }
  }
  return '\0';
}

std::string delimiter_text(char delimiter) {
  return delimiter == '\t' ? "\"\\t\"" : "'" + std::string(1, delimiter) + "'";
}

CsvReader::CsvReader(std::string path, char delimiter, std::optional<TextEncoding> encoding, bool is_chosen)
    : file_(std::move(path), encoding), delimiter_(delimiter), is_chosen_(is_chosen), buffer_(size_t{1} << 16) {}

std::string CsvReader::place() const { return file_.path() + ":" + std::to_string(record_line_); }

int CsvReader::peek() {
  if (position_ == filled_) {
    filled_ = file_.read(buffer_.data(), buffer_.size());
    position_ = 0;
    read_ += filled_;
    if (read_ - record_start_ > kLongestLine + buffer_.size()) {
      throw DataError(place() + ": the record is longer than 256 MiB; is a quotation mark never closed?");
    }
    if (filled_ == 0) return kEnd;
  }
  return static_cast<unsigned char>(buffer_[position_]);
}

int CsvReader::get() {
  const int character = peek();
  if (character != kEnd) ++position_;
  return character;
}

/// Takes the rest of a line end whose first character was read.
void CsvReader::end_line(int character) {
  if (character == '\r' && peek() == '\n') get();
  ++line_;
}

/// What follows an opening quotation mark, up to the closing one.
void CsvReader::read_quoted(std::string& field) {
  while (true) {
    const int character = get();
    if (character == kEnd) {
      throw DataError(place() + ": a quoted field that begins in this record is never closed");
    }
    if (character == '"') {
      if (peek() != '"') return;
      get();  // "" within quotes is one "
    }
    if (character == '\n') ++line_;
    field += static_cast<char>(character);
  }
}

/// Of what follows a closing quotation mark.
std::string CsvReader::quote_advice(int character) const {
  const auto mark = static_cast<char>(character);
  if (std::string_view(";\t|,").find(mark) == std::string_view::npos) return "";
  const std::string text = delimiter_text(mark);
  return "; the columns seem to be separated by " + text +
         (is_chosen_ ? ": write delimiter: " + text : ": save the table with commas");
}

bool CsvReader::next(std::vector<std::string>& fields) {
  while (peek() == '\n' || peek() == '\r') {
    end_line(get());
    record_start_ = read_ - (filled_ - position_);
  }
  record_line_ = line_;
  record_start_ = read_ - (filled_ - position_);
  if (peek() == kEnd) return false;
  size_t count = 0;
  while (true) {
    if (count == kMostColumns) {
      throw DataError(place() + ": has more than " + std::to_string(kMostColumns) +
                      " columns; is the delimiter the right one?");
    }
    if (count == fields.size()) fields.emplace_back();
    std::string& field = fields[count++];  // its memory is used again, record after record
    field.clear();
    int character = get();
    if (character == '"') {
      read_quoted(field);
      character = get();
      if (character != delimiter_ && character != '\n' && character != '\r' && character != kEnd) {
        throw NotDelimited(place() + ": column " + std::to_string(count) + ": text after a closing quotation mark" +
                           quote_advice(character));
      }
    }
    while (character != delimiter_ && character != '\n' && character != '\r' && character != kEnd) {
      field += static_cast<char>(character);
      character = get();
    }
    if (character == delimiter_) continue;
    if (character != kEnd) end_line(character);
    fields.resize(count);
    return true;
  }
}

namespace {

/// How a delimiter divides the first records of a file.
struct Division {
  char delimiter = '\0';
  size_t columns = 0;  // of the very first
  int alike = 0;       // how many have as many
  int others = 0;

  bool is_whole() const { return columns > 1 && others == 0; }
  bool is_of_most() const { return columns > 1 && alike > 1 && alike > others; }
};

Division division_by(const std::string& path, std::optional<TextEncoding> encoding, char delimiter) {
  constexpr int kRecords = 50;
  Division division{delimiter};
  try {
    CsvReader reader(path, delimiter, encoding);
    std::vector<std::string> record;
    for (int i = 0; i < kRecords && reader.next(record); ++i) {
      if (i == 0) division.columns = record.size();
      ++(record.size() == division.columns ? division.alike : division.others);
    }
  } catch (const NotDelimited&) {
    ++division.others;  // and what follows cannot be told
  }
  return division;
}

}  // namespace

char find_delimiter(const std::string& path, std::optional<TextEncoding> encoding, const std::string& candidates) {
  std::vector<Division> found;
  std::vector<Division> of_most;
  for (const char delimiter : candidates) {
    const Division division = division_by(path, encoding, delimiter);
    if (division.is_whole()) found.push_back(division);
    if (division.is_of_most()) of_most.push_back(division);
  }
  if (found.empty()) found = of_most;  // there are broken rows
  if (found.size() == 1) return found[0].delimiter;
  std::vector<std::string> record;
  if (!CsvReader(path, candidates[0], encoding).next(record)) throw DataError(path + ": is empty");
  std::string texts;
  if (found.empty()) {
    for (const char delimiter : candidates) texts += (texts.empty() ? "" : ", ") + delimiter_text(delimiter);
    throw DataError(path + ":1: delimiter: auto finds none: of " + texts +
                    " none divides the first lines into equally many columns, two or more; write the delimiter");
  }
  for (const Division& one : found) {
    texts +=
        (texts.empty() ? "" : " and ") + delimiter_text(one.delimiter) + " (into " + std::to_string(one.columns) + ")";
  }
  throw DataError(path + ":1: delimiter: auto finds several: " + texts +
                  " divide the first lines into equally many columns; write delimiter: " +
                  delimiter_text(found[0].delimiter) + " or the other");
}

}  // namespace trainrun
