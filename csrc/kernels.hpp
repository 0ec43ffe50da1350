// The contract: every kernel, declared once. Shapes stand in comments, outermost axis first; arrays are C-contiguous
// unless strides are given. The caller checks arguments and allocates; a kernel fills what it is given.
//
// Every output element is summed in one fixed order, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "math/merging.hpp"
#include "math/number.hpp"

namespace pyattnorg {

// Called now and then from the calling thread; throws to stop a long kernel (Ctrl-C).
using Poll = std::function<void()>;

// What is summed over the features of two points.
enum class Term {
    l1,        // w |a - b|
    squares,   // (a - b)^2
    masked,    // b^2 where a is not 0: not symmetric
    products,  // a b
};

// How the folder sums of a tree are formed with few live sums: folders in post-order, the largest child first.
// A step takes a leaf (or the sum that its children left in its slot), emits it times `scale`, and, unless it is a
// first child, adds it to the slot below; a first child shares its parent's slot. Slots number about log2(leaves).
struct TreeProgram {
    std::int64_t n_steps;
    std::int64_t n_leaves;
    std::int64_t n_slots;
    const std::int32_t* leaf;  // [n_steps], -1 for a folder of several leaves
    const std::int32_t* slot;  // [n_steps]
    const std::uint8_t* add;   // [n_steps]
    const double* scale;       // [n_steps], folder weight / folder size; 0 emits nothing
};

template <class T>
struct Strided3 {
    const T* data;
    std::int64_t shape[3];   // points, a, b
    std::int64_t stride[3];  // in elements
};

template <class T>
struct Strided2 {
    const T* data;
    std::int64_t shape[2];  // points, features
    std::int64_t stride[2];
};

// A rotation of two slots; a tree's Haar transform is n - 1 of them (math/haar.hpp).
struct HaarStep {
    std::int32_t left, right;            // slots; the coefficient stays in `left`, the folder's sum in `right`
    std::int32_t left_size, right_size;  // leaves below each
};

// The transform along one axis; slot [n] is the slot of every coefficient in breadth-first order.
struct HaarTree {
    const HaarStep* steps;  // [n - 1], or null: the axis is left alone
    const std::int32_t* slot;
};

// A tree by the order of its leaves, and the leaves of the smallest folder that neighbours in that order share.
struct OrderedTree {
    const std::int32_t* order;   // [n]
    const std::int32_t* common;  // [n - 1]
};

namespace cpu {

// out[i, j] = sum over features of term(x_i, x_j).  `weights` ([features] or null) only for Term::l1.
// split = 0: all pairs, out [n, n]; split > 0: points split..n against 0..split, out [n - split, split].
template <class T>
void pairwise(const Strided2<T>& x, const T* weights, Term term, std::int64_t split, T* out, int threads, const Poll&);

// Tree earth mover's distance of method 2.5 and 2.6: the features are the weighted folder averages of x over the
// trees of its two further axes, made as they are used.  out [n, n].
template <class T>
void tree_emd(const Strided3<T>& x, const TreeProgram& a, const TreeProgram& b, T* out, int threads, const Poll&);

// Averages over every folder.  x [outer, n, inner], folders by `start` and `size` in `order`, children after parents;
// out [outer, n_folders, inner].
template <class T>
void folder_averages(const T* x, std::int64_t outer, std::int64_t n, std::int64_t inner, const std::int32_t* parent,
                     const std::int32_t* size, const std::int32_t* leaf, std::int64_t n_folders, T* out, int threads,
                     const Poll&);

// Tree-Haar transform, method 2.10, along every axis that has a tree.  x, out of `shape`, not empty, may be the same
// array. Returns whether all of `out` is finite; false may also mean that a sum of it overflowed.
template <class T>
bool haar(const T* x, const std::vector<std::int64_t>& shape, const std::vector<HaarTree>& trees, bool inverse, T* out,
          int threads, const Poll&);

// Flexible tree of method 2.3 from diffusion coordinates phi [n, m] and |eigenvalues| rate [m], largest first.
// Levels from the leaves up, folders of a level numbered by slot; the last level is the root's.
std::vector<std::vector<std::int32_t>> flexible_tree(const double* phi, const double* rate, std::int64_t n,
                                                     std::int64_t m, double constant, int threads, const Poll&);

// Least-entropy agglomeration (method 2.14) of n points x [n, features], rows `stride` apart; overwritten.
// merges [n - 1, 2]: first points of the two folders, the lower one first; costs [n - 1]; distances [n, n]: l1, of the
// points as given.
template <class T>
void entropy_tree(T* x, std::int64_t n, std::int64_t features, std::int64_t stride, T* distances, std::int32_t* merges,
                  double* costs, int threads, const Poll&);

// Improves a tree of points x [n, features] by exchanging neighbouring folders, until no exchange lowers its cost by
// more than `least_share` of it and by more than `least_gain`, or for `most_sweeps`; how many sweeps changed something.
// `merges` of any binary tree, children first, become those of the better one; costs [n - 1] are written.
template <class T>
int improve_tree(const T* x, std::int64_t n, std::int64_t features, std::int32_t* merges, double* costs,
                 int most_sweeps, double least_share, double least_gain, int threads, const Poll&);

// Scales the columns of x [n, features] by sqrt(1 - noise / variance) and closes the gaps of those whose variance is
// not above `noise`: the columns left, in rows that keep their places. Leaves x as it is where no column would be left.
template <class T>
std::int64_t shrink_features(T* x, std::int64_t n, std::int64_t features, double noise, int threads, const Poll&);

// Sum over all ordered pairs of leaves of the difference in size of their smallest common folders in two trees.
std::int64_t tree_distance(const OrderedTree& a, const OrderedTree& b, std::int64_t n, int threads, const Poll&);

// Sums of |x| and x^2 over all n values.
template <class T>
void norms(const T* x, std::int64_t n, double* magnitudes, double* squares, int threads);

// Grows an orthonormal basis of a block Krylov space of the symmetric matrix s = diag(f) k diag(f) (k [n, n] of either
// type, f [n], computed in double) from `have` to `want` vectors.
// basis [>= want + block, n]: the first `known` are eigenvectors that the others are kept clear of; have = known starts
// anew from the next `block` vectors, which need not be orthonormal. At the end the block after `want` is what the last
// block's images have outside the basis, to go on from. projected [>= want, limit]: basis s basis', as far as known.
// residual [block, block]: inner products of that last block. want - known is a multiple of block.
inline constexpr std::int64_t krylov_vectors = 4;
template <class T>
void krylov(const T* k, const double* f, std::int64_t n, double* basis, std::int64_t known, std::int64_t have,
            std::int64_t want, double* projected, std::int64_t limit, double* residual, int threads, const Poll&);

// out[r, i] = sum over j of k[i, j] vectors[r, j], in double; r < krylov_vectors.
template <class T>
void products(const T* k, std::int64_t n, const double* vectors, double* out, int threads, const Poll&);

// Of a matrix x [n, n], n > 0: the largest |x_ij - x_ji|, the least and the largest entry.
struct Symmetry {
    double apart, least, largest;
};
template <class T>
Symmetry symmetry(const T* x, std::int64_t n, int threads);

// Median of all n values, n > 0, the mean of the middle two where n is even.
template <class T>
T median(const T* values, std::int64_t n);

std::string instruction_set();                      // the one in use
std::vector<std::string> instruction_sets();        // those that run here
void use_instruction_set(const std::string& name);  // throws std::invalid_argument

}  // namespace cpu

// The same on a GPU. Pointers are the device's, work goes onto the caller's stream, and nothing waits for it: results
// are there when the stream has come that far. Nothing is allocated either; `work` holds at least what the function
// whose name ends in _work says, at an address that is a multiple of 256. `In` is float, double, math::float16 or
// math::bfloat16; computing is in Real<In>, which is double for double and else float. Errors of a launch are
// exceptions.
namespace cuda {

using Stream = void*;
template <class In>
using Real = typename math::Computing<In>::type;

// A step of a TreeProgram as a GPU walks it. Leaves are numbered in the order in which they come in the program: those
// of a folder are a run of it.
struct WalkStep {
    std::int32_t leaf, slot, add;
    std::int32_t first, size;  // its run of leaves
    std::int32_t emitted;      // steps before it whose scale is not 0
    std::int32_t folder, unused;
    double scale;
};

struct Walk {
    std::int64_t n_steps, n_leaves, n_slots, n_emitted;
    const WalkStep* host;      // [n_steps], read when work is laid out
    const WalkStep* steps;     // [n_steps], the same on the device
    const std::int32_t* leaf;  // [n_leaves], in the order of the program
    const double* leaf_scale;  // [n_leaves], by leaf: sum of the scales of the folders that hold it
    double concentration;      // how unevenly weight lies on folders, 1 if one has all of it (math::doubt_per_mass)
};

// As cpu::pairwise and cpu::tree_emd, summed from differences.
std::int64_t pairwise_work(std::int64_t points, std::int64_t features, Term term, std::int64_t split, bool wide);
template <class In>
void pairwise(const Strided2<In>& x, const Real<In>* weights, Term term, std::int64_t split, Real<In>* out, void* work,
              Stream stream);
std::int64_t tree_emd_work(std::int64_t points, const Walk& a, const Walk& b, bool wide);
template <class In>
void tree_emd(const Strided3<In>& x, const Walk& a, const Walk& b, Real<In>* out, void* work, Stream stream);

// As cpu::folder_averages.
template <class In>
void folder_averages(const In* x, std::int64_t outer, std::int64_t inner, const Walk& tree, Real<In>* out,
                     Stream stream);

// Rotations of a tree's Haar transform in rounds: those of a round turn rows of their own, all at once.
template <class T>
struct Turn {
    std::int32_t left, right;
    T major, minor;
};
template <class T>
struct HaarRounds {
    std::int64_t n, n_rounds;
    const Turn<T>* turns;       // [n - 1], round after round
    const std::int32_t* first;  // [n_rounds + 1], where rounds begin
    const std::int32_t* slot;   // [n], as in HaarTree
};

// As cpu::haar along one axis of [outer, n, inner]; `out` may be `x` where In is Real<In>.
std::int64_t haar_work(std::int64_t outer, std::int64_t n, std::int64_t inner, bool wide);
template <class In>
void haar(const In* x, std::int64_t outer, std::int64_t inner, const HaarRounds<Real<In>>& tree, bool inverse,
          Real<In>* out, void* work, Stream stream);

// As cpu::norms; out [2] on the device.
std::int64_t norms_work(std::int64_t n);
template <class In>
void norms(const In* x, std::int64_t n, double* out, void* work, Stream stream);

// Affinities in place from x [n, n]: of products their cosines, negative ones 0 and 1 on the diagonal; of squared
// distances the Gaussian of widths [n], the mean of both points'; of distances exp(-d / width).
template <class T>
void cosines(T* x, std::int64_t n, void* work, Stream stream);  // work: n doubles
template <class T>
void gaussian(T* x, std::int64_t n, const double* widths, Stream stream);
template <class T>
void exponential(T* x, std::int64_t n, double width, Stream stream);

// Steps of least-entropy trees. merge_*: cpu::entropy_tree of rows x [n, features], `stride` apart and overwritten,
// whose l1 `distances` [n, n] are known. A pass merges all pairs of folders that are each other's cheapest partner; how
// many passes there are only the data tell, so they are asked for again and again until `left` [1], the number of
// folders that are left, is 1. Passes after the last merge do nothing. State is in `work`.
std::int64_t merge_work(std::int64_t n, bool wide);
template <class T>
void merge_start(const T* distances, std::int64_t n, void* work, Stream stream);
template <class T>
void merge_passes(T* x, std::int64_t n, std::int64_t features, std::int64_t stride, std::int64_t passes,
                  std::int32_t* merges, double* costs, std::int64_t* left, void* work, Stream stream);

// cpu::shrink_features in two steps, as the caller has to learn how many columns are left: their numbers, ascending,
// and factors [features] and their count [1]; then, where there are any, their places at the left of each row.
std::int64_t weigh_features_work(std::int64_t features, bool wide);
template <class T>
void weigh_features(const T* x, std::int64_t n, std::int64_t features, double noise, std::int32_t* columns, T* factors,
                    std::int64_t* kept, void* work, Stream stream);
template <class T>
void close_gaps(T* x, std::int64_t n, std::int64_t features, const std::int32_t* columns, const T* factors,
                std::int64_t kept, Stream stream);

// What cpu::improve_tree measures around folders (cpu/interchange.hpp). Nodes below n are rows of x [n, features],
// others means of folders, by number from n on.
struct MeanStep {
    std::int32_t folder, a, b, unused;  // folder: from 0 on
    double share_a, share_b;
};
struct Near {
    std::int32_t a, b, y, p;  // of the root y = b and p = a, and all weights 0
    math::AroundWeights<double> weights;
};

// Steps in rounds, `first` [rounds + 1] where they begin: a round takes what earlier ones made. out [count, 3]: cost
// and both gains.
std::int64_t around_work(std::int64_t n, std::int64_t features, bool wide);
template <class T>
void around(const T* x, std::int64_t n, std::int64_t features, const MeanStep* steps, const std::int32_t* first,
            std::int64_t rounds, const Near* near, std::int64_t count, double* out, void* work, Stream stream);

// The numbers of ranks `rank` and rank + 1 (or twice the last) of n, from 0 by size, NaN none of them; out [2].
std::int64_t ranked_work();
template <class T>
void ranked(const T* values, std::int64_t n, std::int64_t rank, T* out, void* work, Stream stream);

}  // namespace cuda
}  // namespace pyattnorg
