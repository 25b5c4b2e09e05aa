//! The error function and its relatives, of f32.

use super::exp::exp;
use super::{clamp, polynomial, wide};

/// The error function: near zero an odd polynomial, further away `1 - e^p(|x|)`.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let distance = clamp(x.abs(), 0.0, 4.0);
    let q = polynomial(
        x * x,
        [0.128_379_17, -0.376_126_26, 0.112_835_79, -0.026_853_347, 0.005_187_162, -0.000_799_785_3, 7.806_904e-5],
    );
    let near = x.mul_add(q, x);
    let p = polynomial(
        distance,
        [
            0.000_188_468_02,
            -1.129_580_3,
            -0.633_216_56,
            -0.108_421_91,
            0.025_210_237,
            -0.004_205_266,
            0.000_441_475_74,
            -2.169_878_3e-5,
        ],
    );
    let far = (1.0 - exp(p)).copysign(x);
    if distance < 1.0 { near } else { far }
}

/// The complementary error function, `e^-x^2 / (1 + 2 x)` times a polynomial of `(x - 4) / (x + 4)` (the substitution is that
/// of Shepherd and Laframboise, *Chebyshev approximation of (1 + 2x) exp(x^2) erfc x*, 1981).
#[inline(always)]
pub(crate) fn erfc(x: f32) -> f32 {
    let distance = clamp(f64::from(x.abs()), 0.0, 10.2);
    let (sum, twice) = (distance + 4.0, distance.mul_add(2.0, 1.0));
    let reciprocal = 1.0 / (sum * twice);
    let p = polynomial(
        (distance - 4.0) * (reciprocal * twice),
        [
            1.2329951187796162,
            -0.13962113116548278,
            0.015379622548725514,
            0.0680978473531742,
            -0.1010376243489039,
            0.09372135913214807,
            -0.06635619220974641,
            0.0372196403853828,
            -0.016021618376138202,
            0.005052449426482257,
            -0.001128858915137357,
            -0.0006397170178033756,
        ],
    );
    let right = wide::exp(-distance * distance) * p * (reciprocal * sum);
    (if x < 0.0 { 2.0 - right } else { right }) as f32
}

/// The scaled complementary error function. It is [`erfc`] without the exponential, with a polynomial for all positive arguments; below
/// zero it is `2 e^x^2 - erfcx(-x)`.
#[inline(always)]
pub(crate) fn erfcx(x: f32) -> f32 {
    // Larger distances give zero. The bound of the square covers all arguments with a finite result.
    let distance = clamp(f64::from(x.abs()), 0.0, 1e60);
    let square = clamp(distance * distance, 0.0, 150.0);
    let (sum, twice) = (distance + 4.0, distance.mul_add(2.0, 1.0));
    let reciprocal = 1.0 / (sum * twice);
    let p = polynomial(
        (distance - 4.0) * (reciprocal * twice),
        [
            1.232995118611571,
            -0.13962111671902194,
            0.015379653887989312,
            0.0680970483680642,
            -0.10103910340588869,
            0.09373291837549823,
            -0.06633006827928196,
            0.03716698319737111,
            -0.016198894296806078,
            0.00503378404106403,
            -0.0007553293942287317,
            -0.00020280345026696392,
            0.00014780570519212544,
            -2.035933277081376e-5,
            -9.599294957064157e-6,
            3.1290745114553037e-6,
        ],
    );
    let right = p * (reciprocal * sum);
    (if x < 0.0 { wide::exp(square).mul_add(2.0, -right) } else { right }) as f32
}

/// The inverse of the error function: `x p(w)` with `w = -log(1 - x^2)`, and far from zero `x p(sqrt(w))` (Giles,
/// *Approximating the erfinv function*, 2012). NaN outside of [-1, 1].
#[inline(always)]
pub(crate) fn erf_inv(x: f32) -> f32 {
    let wide = f64::from(x);
    let w = -wide::log(wide.mul_add(-wide, 1.0));
    let near = polynomial(
        w,
        [
            0.8862269258194323,
            0.23201364442965203,
            0.01154955866838058,
            -0.002335917579319168,
            -0.00012649196413823223,
            4.49274083635405e-05,
            3.11805193447158e-06,
            -1.4364709457139673e-06,
            4.486828170549671e-08,
            2.3721181363493875e-08,
            -3.2165830594468085e-09,
            1.3285869819172393e-10,
        ],
    );
    let far = polynomial(
        w.sqrt(),
        [
            -1.9203386582184974,
            9.291990902533168,
            -13.097525198028661,
            10.810926193704063,
            -5.422019749481414,
            1.7531470218141556,
            -0.36970912749020657,
            0.04935783478554755,
            -0.00380081358552174,
            0.00012896626046262654,
        ],
    );
    let result = (wide * if w < 5.0 { near } else { far }) as f32;
    let result = if x.abs() == 1.0 { f32::INFINITY.copysign(x) } else { result };
    if x.abs() > 1.0 { f32::NAN } else { result }
}
