#include "registry/text_data/files_in_turn.h"

#include <ATen/ops/arange.h>

#include <algorithm>

#include "registry/data/views.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

class FilesInTurn : public UnlabelledData {
 public:
  FilesInTurn(const UnlabelledSource& source, std::vector<FileInTurn> files)
      : learnt_(source.learnt), passed_over_(source.begin), files_(std::move(files)) {}

  std::optional<Piece> next() override {
    while (next_ < files_.size()) {
      FileInTurn file = std::move(files_[next_++]);
      file.data->open();
      if (!learnt_.is_null()) file.data->set_learnt(learnt_);
      for (std::string& note : file.data->facts().notes()) notes_.push_back(std::move(note));
      const int64_t size = file.data->size();
      const int64_t first = std::min(passed_over_, size);
      passed_over_ -= first;
      if (first == size) continue;
      Piece piece;
      piece.num_read = size - first;
      if (files_.size() > 1) {
        piece.beside.push_back({"file", std::vector<std::string>(static_cast<size_t>(size - first), file.path)});
      }
      for (ValueColumn& column : file.beside(first)) piece.beside.push_back(std::move(column));
      piece.samples = std::make_unique<DatasetView>(std::move(file.data), at::arange(first, size, at::kLong));
      return piece;
    }
    return std::nullopt;
  }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  nlohmann::json learnt_;
  int64_t passed_over_;
  std::vector<FileInTurn> files_;
  size_t next_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace

std::unique_ptr<UnlabelledData> files_in_turn(const UnlabelledSource& source, std::vector<FileInTurn> files) {
  if (source.with_target) throw DataError("a series of texts cannot be forecast");
  return std::make_unique<FilesInTurn>(source, std::move(files));
}

}  // namespace trainrun
