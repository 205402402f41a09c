"""S_w = L_w L_w' of the rows of L that one row of data uses.

L is lower triangular, with zeros above the diagonal, and there is one for each latent
function (section 3.3 of the paper). Its rows are given by their indices. Any order is
allowed, and increasing indices cost least, because a product of rows ends where the
shorter row does. Only `quadratic_form` also takes an L with fewer columns than rows,
whose columns are draws from q(u).
"""

from skswsgp._compiled.jit import njit

# Columns of L, or rows of a matrix, that fit in a cache
PANEL_COLUMNS = 128


@njit
def active_covariance(L, rows, H, S):
    """Set S[q] = L_w L_w' for the first H of `rows`, in blocks of four rows by two."""
    pairs = (H + 1) // 2
    for q in range(S.shape[0]):
        for block in range((H + 3) // 4 * pairs):
            g0, h0 = block // pairs * 4, block % pairs * 2
            g1, g2, g3 = min(g0 + 1, H - 1), min(g0 + 2, H - 1), min(g0 + 3, H - 1)
            h1 = min(h0 + 1, H - 1)
            if h0 > g3:
                continue
            a, b, c, d = rows[g0], rows[g1], rows[g2], rows[g3]
            e, f = rows[h0], rows[h1]
            s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = L.dtype.type(0.0)
            for j in range(min(max(a, b, c, d), max(e, f)) + 1):
                x, y = L[q, e, j], L[q, f, j]
                s0 += L[q, a, j] * x
                t0 += L[q, a, j] * y
                s1 += L[q, b, j] * x
                t1 += L[q, b, j] * y
                s2 += L[q, c, j] * x
                t2 += L[q, c, j] * y
                s3 += L[q, d, j] * x
                t3 += L[q, d, j] * y
            S[q, g0, h0] = S[q, h0, g0] = s0
            S[q, g0, h1] = S[q, h1, g0] = t0
            S[q, g1, h0] = S[q, h0, g1] = s1
            S[q, g1, h1] = S[q, h1, g1] = t1
            S[q, g2, h0] = S[q, h0, g2] = s2
            S[q, g2, h1] = S[q, h1, g2] = t2
            S[q, g3, h0] = S[q, h0, g3] = s3
            S[q, g3, h1] = S[q, h1, g3] = t3


@njit
def quadratic_form(L, q, rows, H, a, projection):
    """Return a' S_w a = |L_w' a|^2; sets projection, a number a column, to L_w' a."""
    for j in range(projection.shape[0]):
        projection[j] = 0.0
    for h in range(H):
        row, weight = rows[h], a[0, h]
        stop = row + 1 if L.shape[2] == L.shape[1] else L.shape[2]
        for j in range(stop):
            projection[j] += weight * L[q, row, j]
    square = 0.0
    for j in range(projection.shape[0]):
        square += projection[j] * projection[j]
    return square
