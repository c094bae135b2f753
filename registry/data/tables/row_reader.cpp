#include "registry/data/tables/row_reader.h"

#include "registry/language/text_forms.h"

namespace trainrun {

std::string RowsLeftOut::text(const std::string& path) const {
  return path + ": " + counted(count, "row cannot be read and is", "rows cannot be read and are") +
         " left out (broken: skip)" + (count == 1 ? ": " : ", the first: ") + first;
}

std::string RowsLeftOut::nothing_left_text(const std::string& path) const {
  return count > 0 ? "no row is left: " + text(path) : path + ": has no rows below the names of its columns";
}

bool RowReader::next(std::vector<Cell>& row) {
  while (true) {
    try {
      return reader_->next(row);
    } catch (const RowError& error) {
      const std::string fault = error.what();
      if (!skips_) throw DataError(fault + (fault.find("; ") == std::string::npos ? "; " : "; or ") + kSkipAdvice);
      left_out_.add(fault);
    }
  }
}

}  // namespace trainrun
